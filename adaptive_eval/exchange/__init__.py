"""Import of runs from the logs of other tools, and export in their formats."""
