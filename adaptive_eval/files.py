"""Files that are there whole or not at all, even after a power failure."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from adaptive_eval.errors import StoreError, StoreFull

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(path: Path, data: bytes, mend: str) -> None:
    """Replace the file at `path`; raises `StoreFull` or `StoreError`, and leaves what was there as it was.

    `mend` says what a person can do about it.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        what = "the disk is full" if error.errno in _FULL else f"it cannot be written: {error.strerror}"
        kind = StoreFull if error.errno in _FULL else StoreError
        raise kind(f"{path}: {what}. {mend}") from error
