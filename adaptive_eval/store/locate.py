"""Directories of runs: which hold one, how they are named and prepared."""

import os
import re
from difflib import get_close_matches
from pathlib import Path

from adaptive_eval.base.lists import first_few
from adaptive_eval.store.errors import DATABASE_FILE

MAX_NAMES = 8
"""Runs that an error names."""


def has_database(path: Path) -> bool:
    """Whether a path is the directory of a run, readable or not."""
    return (path / DATABASE_FILE).exists()


def runs_in(path: Path) -> list[str]:
    """Names of the runs in a folder; empty if it is a run itself, or cannot be read."""
    if has_database(path):
        return []
    try:
        directories = sorted(path.iterdir())
    except OSError:  # it does not exist yet, or no longer
        return []
    return [run.name for run in directories if os.access(run / DATABASE_FILE, os.R_OK)]


def absence(path: Path) -> str:
    """Why there is no run at a path, with the runs that may be meant; empty if there is one, or another folder."""
    if path.is_dir():
        return ""
    if path.exists():
        return f"{path} is a file; name the folder of a run"
    names = runs_in(path.parent)
    if close := get_close_matches(path.name, names, 1, cutoff=0.8):
        return f"{path} does not exist; did you mean {path.parent / close[0]}?"
    place = "this folder" if path.parent == Path() else str(path.parent)
    existing = f"the runs in {place} are {first_few(names, MAX_NAMES)}" if names else f"{place} has no runs"
    return f"{path} does not exist; {existing}"


MARK = "~"
"""Precedes the number of a run started with `--fresh`, as in `<folder>/<name>~2`; not allowed in run names."""


def newest_directory(folder: Path, name: str) -> Path:
    """The directory of the newest run of this name, or the plain name if there is none."""
    return folder / _numbered_name(name, max([1, *_used_numbers(folder, name)]))


def fresh_directory(folder: Path, name: str) -> Path:
    """The plain name, or the first numbered name, that no run uses."""
    return folder / _numbered_name(name, max([0, *_used_numbers(folder, name)]) + 1)


def _has_only_hidden(path: Path) -> bool:
    """Whether a directory has only hidden files, as after a dry run."""
    try:
        return all(entry.name[0] == "." for entry in path.iterdir())
    except OSError:
        return False


def _numbered_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{MARK}{number}"


def _used_numbers(folder: Path, name: str) -> list[int]:
    names = [path.name for path in folder.iterdir() if not _has_only_hidden(path)] if folder.is_dir() else []
    pattern = re.compile(rf"{re.escape(name)}(?:{MARK}(\d+))?")
    return [int(match[1] or 1) for match in map(pattern.fullmatch, names) if match]
