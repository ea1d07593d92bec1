"""Human labels for answers: their file, the page to enter them, and what they show about the grader."""
