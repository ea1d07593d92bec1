"""Tables of trials, one row a trial: CSV, JSON lines and Parquet."""
