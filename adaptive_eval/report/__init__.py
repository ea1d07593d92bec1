"""Convert a stored run into values: its results, its status, how it ended, and what it began with."""
