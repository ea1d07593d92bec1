"""Tasks of Inspect as benchmarks: a separate process with Inspect supplies questions, answers and scores."""
