"""What a start does before it asks for anything: it grades what has no grade, and replays the log.

The past is rewritten only here, and before the log is replayed, so that this start and all later ones read the same:

    1. the note that a start has begun
    2. stored answers without a grade are graded, in their places
    3. the log is replayed, stage by stage
    4. what earlier starts had in flight is claimed by its supply, or charged (`Opened`)
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from typing import Any, Protocol

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.run.driver import Driver
from adaptive_eval.run.events import Event, Opened, Regrade, Setting, Tick, Ungraded
from adaptive_eval.run.machine import Machine
from adaptive_eval.run.records import BEGUN, Note, Record, Row
from adaptive_eval.run.replay import Stage, replay
from adaptive_eval.run.trial import JUDGING, Key, Trial

AT_A_TIME = 256
"""Answers that are graded again at once: a bound for the memory that their texts take."""


class Change(StrEnum):
    """What a change of the settings means for looks that were taken."""

    NONE = "none"
    """Both decide alike."""
    DECISIONS = "decisions"
    """Looks stand, and the run goes on otherwise."""
    PROMISE = "promise"
    """Looks stand, and every pair is judged anew from the next look on."""


class StoredLog(Protocol):
    """A log that can be read, as `storage.read` does."""

    def log(self, *, in_whole_commits: bool) -> Iterable[Sequence[Row]]:
        """The log in its order, without texts."""

    def notes(self) -> list[tuple[int, Note]]:
        """All notes."""

    def ungraded(self) -> Iterator[tuple[int, Trial]]:
        """Stored answers without a grade, with their texts."""

    def known_answers(self, models: Collection[int], before: int) -> Iterable[Trial]:
        """Stored answers of models before a sequence number."""

    def reserved(self) -> set[Key]:
        """Trials that were in flight."""

    def spent(self) -> Cost:
        """What caps count."""

    def has_grades(self) -> bool:
        """Whether any answer has a grade."""

    def looked(self) -> set[int]:
        """Configurations under which looks were taken."""

    def settings_ends(self) -> dict[int, int]:
        """By configuration: the sequence number at which it was changed."""


class Appendable(Protocol):
    """A log to whose end records can be written."""

    last_seq: int

    def append(self, *records: Record) -> list[Row]:
        """Write records, in one commit."""


SettingOf = Callable[[int], Setting]
"""The settings of a configuration, by its number."""
ChangeBetween = Callable[[int, int], Change]
"""What differs between two configurations, by their numbers."""
ReserveOf = Callable[[Trial], Cost]
"""The most that the grade of a stored answer may cost."""


def stored_stages(
    reader: StoredLog, today: int, setting: Setting, setting_of: SettingOf, change_between: ChangeBetween
) -> list[Stage]:
    """The stages of a run: configurations under which looks were taken, and then that of today.

    Configurations that decide alike are one stage.
    """
    looked, ends = reader.looked(), reader.settings_ends()
    numbers: list[int] = []
    for number in sorted(number for number in looked if number < today):
        if numbers and change_between(numbers[-1], number) is Change.NONE:
            numbers.pop()  # the later one has the same settings, and lasts longer
        numbers.append(number)
    if numbers and change_between(numbers[-1], today) is Change.NONE:
        numbers.pop()
    stages, before = list[Stage](), None
    for number in (*numbers, today):
        own = setting if number == today else replace(setting_of(number), is_followed=True)
        stands = before is None or change_between(before, number) is not Change.PROMISE
        stages.append(Stage(replace(own, verdicts_stand=stands), None if number == today else ends[number]))
        before = number
    return stages


async def begin(
    driver: Driver,
    store: Appendable,
    reader: StoredLog,
    stages: Sequence[Stage],
    reserve_of: ReserveOf = lambda trial: NO_COST,
    *,
    about: dict[str, Any] | None = None,
) -> tuple[Machine, list[Event]]:
    """Bring a run to where it can go on; returns its machine, and the first events for it."""
    setting = stages[-1].setting
    store.append(Note(BEGUN, None, {**(about or {}), "verdicts_at_once": setting.verdicts_at_once}))
    await _regrade(driver, store, reader, setting, reserve_of)
    machine = replay(lambda whole: reader.log(in_whole_commits=whole), stages, reader.notes(), reader.known_answers)
    return machine, [Tick(*driver.clock_times()), Opened(driver.claims(reader.reserved()))]


async def _regrade(
    driver: Driver, store: Appendable, reader: StoredLog, setting: Setting, reserve_of: ReserveOf
) -> None:
    """Grade stored answers that have no grade, a part at a time."""
    roster = frozenset(setting.roster)
    waiting = (row for row in reader.ungraded() if row[1].model in roster)
    asked = _verdicts_asked(reader)
    while not driver.stops and (rows := list(islice(waiting, AT_A_TIME))):
        answers = []
        for seq, trial in rows:
            was_asked = trial.state is JUDGING and trial.verdict != NO_COST and asked > 0
            asked -= was_asked
            answers.append(Ungraded(seq, trial, reserve_of(trial), was_asked))
        machine = Machine(setting, seq=store.last_seq, spent=reader.spent(), has_grades=reader.has_grades())
        await driver.run(machine, [Tick(*driver.clock_times()), Regrade(answers)])


def _verdicts_asked(reader: StoredLog) -> int:
    """How many of the first answers without a verdict earlier starts may have asked a judge about."""
    begun = [note.body.get("verdicts_at_once", 0) for _, note in reader.notes() if note.kind == BEGUN]
    return max((int(number) for number in begun[:-1]), default=0)
