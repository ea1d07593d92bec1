"""Check that a run is intact: its stored rows, and sums and results.json against them."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.base.errors import StoreError
from adaptive_eval.notes import RunFinished, newest_turn
from adaptive_eval.report.ending import is_asking_again
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import Results
from adaptive_eval.report.results_file import RESULTS_FILE, is_intact, read_results
from adaptive_eval.report.trial_sums import fault_of_sums
from adaptive_eval.store.database import reindex_instructions
from adaptive_eval.store.lock import is_held
from adaptive_eval.store.verify import Integrity


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome of a check."""

    trials: int
    looks: int
    damages: tuple[str, ...]
    notes: tuple[str, ...]
    hint: str | None = None
    """The repair, if there is one."""


def verify_run(directory: Path) -> Verified:
    """Check all of a run; raises `StoreError` if it cannot be opened."""
    stored = Integrity.check(directory)
    notes, damages = list[str](), [*stored.damages]
    results = read_results(directory)
    if is_intact(directory) is False:
        damages.append(f"{RESULTS_FILE}: is not what was written")
    elif results is None and stored.looks:
        notes.append(f"there is no {RESULTS_FILE} of a look, or it is of another version")
    if not stored.damages:
        try:
            with closing(RunReader.open(directory)) as reader, reader.consistent_read():
                damages += _faults_of_sums(reader)
                if results is not None:
                    _compare_with_store(reader, results, damages, notes)
        except StoreError as error:
            damages.append(str(error))
    hint = reindex_instructions(directory) if stored.only_structure else None
    return Verified(stored.trials, stored.looks, tuple(damages), tuple(notes), hint)


def _faults_of_sums(reader: RunReader) -> Iterator[str]:
    """Compare stored sums with the trials, and look for the counts of the newest report."""
    if (fault := fault_of_sums(reader)) is not None:
        yield fault
    elif (report := reader.log.newest_report(cells=True)) is not None and not any(report.cells):
        yield f"the report of look {report.look + 1}: its counts are missing"


def _compare_with_store(reader: RunReader, results: Results, damages: list[str], notes: list[str]) -> None:
    """Compare the trials and looks of results.json with the stored ones."""
    look, trials = reader.look_count() or None, reader.trial_count()
    results_look = results.looks[-1].look if results.looks else None
    results_trials = results.cost.stored_trials
    if (results_trials, results_look) == (trials, look) or is_held(reader.directory):
        return
    of_file, of_store = ("no look" if number is None else f"look {number}" for number in (results_look, look))
    summary = f"{RESULTS_FILE} has {results_trials:,} trials and {of_file}, the store has {trials:,} and {of_store}"
    events = reader.events()
    has_lost = results_trials > trials and not is_asking_again(events)
    if has_lost or isinstance(newest_turn(events), RunFinished):
        damages.append(f"{summary}: they belong to different runs, or trials are lost")
    else:
        notes.append(f"{summary}: resuming the run updates it")
