"""A simulated model server with known success probabilities, and faults on demand."""
