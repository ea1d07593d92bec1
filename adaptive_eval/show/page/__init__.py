"""The page on which a run is read: served by the monitor, or as one file that needs nothing else."""
