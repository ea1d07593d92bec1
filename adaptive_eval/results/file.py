"""results.json: written so that a reader finds the whole old file or the whole new one, even after a power failure."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from adaptive_eval.errors import StoreError, StoreFull
from adaptive_eval.results.types import Results

RESULTS_FILE = "results.json"


def read_results(directory: Path) -> Results | None:
    """The file in `directory`; None where there is none, or it is of another version."""
    try:
        return TypeAdapter(Results).validate_json((directory / RESULTS_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def write_results(directory: Path, results: Results) -> Path:
    """Replace the file in `directory`; raises `StoreFull` or `StoreError`, and leaves the old file as it was."""
    path = directory / RESULTS_FILE
    draft = path.with_suffix(".json.tmp")
    # not indented: with thousands of questions the file is large, and written at every look
    data = orjson.dumps(results, option=orjson.OPT_APPEND_NEWLINE)
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreFull(
                f"{path}: the disk is full. What was committed is intact: free space and run the same command"
            ) from error
        raise StoreError(f"{path}: {error.strerror}. What was committed is intact: run the same command") from error
    return path
