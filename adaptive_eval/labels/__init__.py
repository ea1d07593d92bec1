"""Labels that people give to answers: their file, the page to give them on, and what they say of the grader."""
