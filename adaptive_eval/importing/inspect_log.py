"""Inspect logs: `.eval` (a zip of samples), and the older JSON; also those of runs that were cut short.

A log that was never finished has no header.json, but its journal begins with start.json, and its samples are there as
far as they were written; where only the journal's summaries are, these give the scores without the texts.
"""

from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any

from adaptive_eval.importing.bounded import Archive, whole
from adaptive_eval.importing.inspect_sample import SampleReader
from adaptive_eval.importing.json_entries import entries
from adaptive_eval.importing.record import LogFile, Record

START, HEADER = "_journal/start.json", "header.json"
SUMMARIES, JOURNAL, SAMPLES = "summaries.json", "_journal/summaries/", "samples/"


def is_inspect(archive: Archive) -> bool:
    """The zip is an Inspect log."""
    return START in archive.names or HEADER in archive.names


def read_archive(file: LogFile, archive: Archive) -> Iterator[Record]:
    """The trials of an `.eval` log."""
    reader = SampleReader(file, archive.json(HEADER if HEADER in archive.names else START))
    names = [name for name in archive.names if name.startswith(SAMPLES) and name.endswith(".json")]
    for number, name in enumerate(names, start=1):
        file.share = number / len(names)
        yield reader.record(archive.json(name), name)
    if not names:
        for name, summary in _summaries(archive):
            yield reader.record(summary, name)


def _summaries(archive: Archive) -> Iterator[tuple[str, object]]:
    journal = sorted(name for name in archive.names if name.startswith(JOURNAL))
    for name in [SUMMARIES] if SUMMARIES in archive.names else journal:
        listed = archive.json(name)
        for number, summary in enumerate(listed if isinstance(listed, list) else [listed], start=1):
            yield f"{name}, sample {number}", summary


def read_json(file: LogFile) -> Iterator[Record]:
    """The trials of a JSON log, sample by sample."""
    data = whole(file)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise file.refuse(f"is not UTF-8 (byte {error.start + 1})") from error
    del data
    header: dict[str, Any] = {}
    reader: SampleReader | None = None
    try:
        for entry in entries(text, "samples"):
            file.share = entry.share
            if entry.element is None:
                header[entry.key] = entry.value
            else:
                reader = reader or SampleReader(file, header)
                yield reader.record(entry.value, f"sample {entry.element + 1}")
    except RecursionError:
        raise file.refuse("is nested too deeply to be a log") from None
    except JSONDecodeError as error:
        raise file.refuse(f"is not JSON, or is cut off: {error}") from error
    if reader is None:
        raise file.refuse("has no samples; it was written with log_samples off, or holds no log of Inspect")
