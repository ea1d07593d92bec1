"""Which runs there are: one, or those that lie in a folder or in a database."""

import os
from pathlib import Path

from adaptive_eval.store.postgres.address import address_of
from adaptive_eval.store.whereabouts import LEDGER_FILES, holds_ledger, names_in


def runs_in(path: Path) -> dict[str, Path]:
    """The runs by name: the directory itself, or what lies in it; nothing where it cannot be looked into."""
    if holds_ledger(path):
        return {path.name: path}
    if (address := address_of(path)) is not None:
        return {name: address.run_at(name).path for name in names_in(address)}
    try:
        found = sorted(path.iterdir())
    except OSError:  # it is not there yet, or no more
        return {}
    return {one.name: one for one in found if any(os.access(one / name, os.R_OK) for name in LEDGER_FILES)}
