"""Runs in the experiment trackers that people have: W&B and MLflow, each of which is an extra."""
