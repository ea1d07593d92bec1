"""Graders turn an answer's text into signals, and rubrics turn signals into a category.

Nothing is imported here, so that a worker process loads only the grader it needs: `pool` is for the event loop,
`registry` for the names, `rubric` for categories, `types` for the base class of graders.
"""
