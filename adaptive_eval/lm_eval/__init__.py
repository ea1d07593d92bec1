"""Tasks of lm-evaluation-harness: their prompts as questions, and their own grading of what models answer."""
