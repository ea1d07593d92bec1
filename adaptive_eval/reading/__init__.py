"""Reading a stored run: as one value, at any time, whether or not another process is writing it."""
