"""Tables of trials, one row per trial: CSV, JSON lines and Parquet."""
