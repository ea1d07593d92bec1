"""Runs by the machine, read from their logs."""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "run")]

from road import start  # noqa: E402

from adaptive_eval.core.types import Reason  # noqa: E402
from adaptive_eval.notes.batches import PendingBatch, pending_batches  # noqa: E402
from adaptive_eval.notes.event import Event  # noqa: E402
from adaptive_eval.run.charges import Charge  # noqa: E402
from adaptive_eval.run.notes import event_of  # noqa: E402
from adaptive_eval.run.trial import ANSWERED  # noqa: E402
from adaptive_eval.storage.read import LogReader  # noqa: E402
from adaptive_eval.storage.verify import Integrity  # noqa: E402


@dataclass(frozen=True)
class Outcome:
    """What must not depend on anything that happened on the way: trials with their categories, and looks."""

    trials: dict[tuple[str, str, int], int | None]
    looks: list[Any]

    @classmethod
    def of(cls, directory: Path) -> "Outcome":
        assert not Integrity.check(directory).damages
        with closing(LogReader.open(directory)) as reader:
            models = {number: name for name, number in reader.models().items()}
            questions = {number: name for name, number in reader.questions().items()}
            trials = {
                (models[trial.model], questions[trial.question], trial.number): trial.category
                for _, trial in reader.trials()
                if trial.state in ANSWERED
            }
            looks = [{**look.body, "report": None} for look in reader.looks()]
        return cls(trials, looks)


def run(config: Path, directory: Path) -> Outcome:
    """A start that goes to the end of the run."""
    reason = reason_of(config, directory)
    assert reason is not None
    return Outcome.of(directory)


def reason_of(config: Path, directory: Path) -> Reason | None:
    reason, _ = asyncio.run(start(config, directory))
    return reason


def events(directory: Path) -> list[Event]:
    with closing(LogReader.open(directory)) as reader:
        names = [*reader.models()]
        return [event_of(note, names) for _, note in reader.notes()]


def charges(directory: Path) -> list[Charge]:
    with closing(LogReader.open(directory)) as reader:
        return [
            record for rows in reader.log(in_whole_commits=False) for _, record in rows if isinstance(record, Charge)
        ]


def lost(directory: Path) -> int:
    """Answers that were charged, and that no row has."""
    return sum(charge.number for charge in charges(directory))


def pending(directory: Path) -> list[PendingBatch]:
    return pending_batches(events(directory))


def in_flight(directory: Path) -> int:
    with closing(LogReader.open(directory)) as reader:
        return len(reader.reserved())


def kinds(found: Iterable[Event]) -> list[str]:
    return [event.kind for event in found]
