"""Logs of Inspect, read and written."""
