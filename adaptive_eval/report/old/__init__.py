"""How reports were made by replaying a run of the old store: goes with it."""
