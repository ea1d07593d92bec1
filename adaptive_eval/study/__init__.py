"""Runs that ask no server: replays of recorded or simulated outcomes, and forecasts of runs to come."""
