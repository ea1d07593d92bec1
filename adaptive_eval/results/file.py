"""results.json: a reader finds the whole old file or the whole new one, even after a power failure."""

from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from adaptive_eval.files import write_whole
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
    # not indented: with thousands of questions the file is large, and written at every look
    data = orjson.dumps(results, option=orjson.OPT_APPEND_NEWLINE)
    write_whole(path, data, "What was committed is intact: mend that and run the same command")
    return path
