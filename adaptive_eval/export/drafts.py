"""Files and folders that appear whole or not at all: written beside their place, and moved there at the end."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adaptive_eval.errors import ConfigError, StoreError


@contextmanager
def new_file(path: Path, force: bool) -> Iterator[Path]:
    """Where to write a file that is to be at `path`; with `force` it may replace one."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, but this format is one file; give another --output")
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already; replace it with --force, or give another --output")
    draft = _beside(path)
    with _told(path):
        try:
            yield draft
            _sync(draft)
            draft.replace(path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, force: bool, ending: str) -> Iterator[Path]:
    """A folder to be filled with files of this ending; with `force` it may replace one that holds nothing else."""
    if path.exists():
        _require_ours(path, force, ending)
    draft = _beside(path)
    with _told(path):
        draft.mkdir()
        try:
            yield draft
            for file in draft.iterdir():
                _sync(file)
            _put(draft, path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _require_ours(path: Path, force: bool, ending: str) -> None:
    if not path.is_dir():
        raise ConfigError(f"{path} is a file, but this format is a folder of files; give another --output")
    others = sorted(file.name for file in path.iterdir() if file.suffix != ending or not file.is_file())
    if others:
        raise ConfigError(f"{path} holds {others[0]}, which is no {ending} file; give an --output of its own")
    if not force and any(path.iterdir()):
        raise ConfigError(f"{path} is there already; replace it with --force, or give another --output")


def _put(draft: Path, path: Path) -> None:
    """Move the draft to its place; what is there is out of the way for that moment, and gone after it."""
    if not path.exists():
        draft.rename(path)
        return
    old = path.with_name(f".{path.name}.old-{os.getpid()}")
    path.rename(old)
    try:
        draft.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.draft-{os.getpid()}")


def _sync(path: Path) -> None:
    """Have the file on the disk before it gets its name, so that a power failure cannot leave an empty one."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}; give another --output") from error
