"""Runs that are stored without a server: their trials are made up, so that every value in them is known.

And what is stored of any run, read once."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from adaptive_eval.machine.notes import note_of
from adaptive_eval.notes import Event, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.results import Results
from adaptive_eval.report.results_file import read_results
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.write import RunStore

Kind = TypeVar("Kind", bound=Event)


def stored_header(directory: Path) -> RunHeader:
    with closing(RunReader.open(directory)) as reader:
        return reader.header()


def stored_trials(directory: Path) -> list[TrialRecord]:
    with closing(RunReader.open(directory)) as reader:
        return list(reader.trials())


def stored_events(directory: Path) -> list[Event]:
    with closing(RunReader.open(directory)) as reader:
        return list(reader.events())


def stored_results(directory: Path) -> Results:
    """Those of its results file, which it must have."""
    results = read_results(directory)
    assert results is not None
    return results


def events_in(directory: Path, kind: type[Kind]) -> list[Kind]:
    """Those of a kind."""
    return list(events_of_kind(stored_events(directory), kind))


def store_records(
    directory: Path,
    header: RunHeader,
    records: Iterable[TrialRecord] = (),
    events: Iterable[Event] = (),
    *,
    elapsed: float | None = None,
    held: Mapping[str, Any] | None = None,
) -> Path:
    """Store trials and events in a new run, or at the end of the one that is there, with new settings if `header` has
    others; returns its directory."""
    remaining = iter(records)
    with closing(RunStore.open(directory, header)) as store:
        if store.reader.configurations()[-1] != header.configuration:
            store.change_settings(header, [])
        models, questions = store.reader.models(), store.reader.questions()
        while part := list(islice(remaining, 1000)):
            store.append(*(record.numbered(models[record.model], questions[record.question]) for record in part))
        notes = [note_of(event, models) for event in events]
        store.commit([*enumerate(notes, store.last_seq + 1)], elapsed=elapsed, held=held)
    return directory
