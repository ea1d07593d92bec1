"""The page that shows a run: served by the monitor, or as one self-contained file."""
