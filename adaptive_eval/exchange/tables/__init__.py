"""Tables of trials, one row per trial: CSV and JSON lines."""
