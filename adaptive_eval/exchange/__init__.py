"""Runs out of the logs of others, and runs in the formats of others; by format."""
