"""Log runs to experiment trackers: W&B and MLflow, each of which is an extra."""
