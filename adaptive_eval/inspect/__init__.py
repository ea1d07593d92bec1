"""Tasks of Inspect as benchmarks: a separate process runs Inspect and supplies questions, answers and scores."""
