"""Which runs there are: one directory, or those that lie in a folder."""

import os
from pathlib import Path

from adaptive_eval.store.database import DATABASE_FILE


def holds_run(path: Path) -> bool:
    """The directory itself is a run, readable or not."""
    return (path / DATABASE_FILE).exists()


def runs_in(path: Path) -> dict[str, Path]:
    """The runs by name: the directory itself, or what lies in it; nothing where it cannot be looked into."""
    if holds_run(path):
        return {path.name: path}
    try:
        found = sorted(path.iterdir())
    except OSError:  # it is not there yet, or no more
        return {}
    return {one.name: one for one in found if os.access(one / DATABASE_FILE, os.R_OK)}
