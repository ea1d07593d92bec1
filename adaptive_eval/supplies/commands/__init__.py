"""Models that are commands of the user: a process for each trial, in a folder of its own."""
