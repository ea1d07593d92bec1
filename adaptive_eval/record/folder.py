"""Which runs there are: one, or those that lie in a folder or in a database."""

import os
from pathlib import Path

from adaptive_eval.store.database import DATABASE_FILE
from adaptive_eval.store.postgres.address import address_of
from adaptive_eval.store.whereabouts import POINTER_FILE, holds_ledger, names_in


def holds_run(path: Path) -> bool:
    """This itself is a run, readable or not."""
    return holds_ledger(path)


def runs_in(path: Path) -> dict[str, Path]:
    """The runs by name: the directory itself, or what lies in it; nothing where it cannot be looked into."""
    if holds_run(path):
        return {path.name: path}
    if (address := address_of(path)) is not None:
        return {name: address.run_at(name).path for name in names_in(address)}
    try:
        found = sorted(path.iterdir())
    except OSError:  # it is not there yet, or no more
        return {}
    return {one.name: one for one in found if any(os.access(one / name, os.R_OK) for name in FILES)}


FILES = (DATABASE_FILE, POINTER_FILE)
"""One of them makes a directory a run."""
