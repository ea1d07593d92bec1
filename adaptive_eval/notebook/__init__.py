"""Runs from Python: `adaptive_eval.run` and `adaptive_eval.read_run`, for notebooks and for programs."""
