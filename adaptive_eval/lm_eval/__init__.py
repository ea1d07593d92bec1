"""Tasks of lm-evaluation-harness: their prompts as questions, and their grading of answers."""
