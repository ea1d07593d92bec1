"""Tasks of Inspect as benchmarks: a process in which Inspect runs supplies questions, answers and scores."""
