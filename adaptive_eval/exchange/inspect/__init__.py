"""Inspect: its logs read and written, and the controller inside one of its evaluations."""
