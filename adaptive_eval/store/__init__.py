"""The directory of a run, safe against kills, crashes and full disks."""
