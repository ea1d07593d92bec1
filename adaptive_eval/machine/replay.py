"""Replays a stored log to its end: for a start, a test, or an inspection of a run.

A *stage* is a configuration under which looks were taken, and that decides differently from the next one. A model that
was set aside because of its servers returns with the next start, as if nothing had happened; only in an ended stage,
whose looks stand, it stays set aside as in its last start. An ended stage keeps its looks though answers of it are
discarded later: they are taken without the models of these answers.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from adaptive_eval.machine.events import Replayed, Setting, StageBegun
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.records import (
    ALARM,
    BEGUN,
    DISCARDED,
    IMPORTED,
    REGRADED,
    SET_ASIDE,
    Note,
    Row,
    SettingsEnd,
)
from adaptive_eval.machine.trial import Trial
from adaptive_eval.machine.usage import AnswerFault


class Stage(NamedTuple):
    """Settings, and their end in the log."""

    setting: Setting
    end: SettingsEnd | None = None
    """None for the current settings."""


KnownAnswers = Callable[[Collection[int], int], Iterable[Trial]]
"""Stored answers of models, before a sequence number."""


def void_notes(notes: Sequence[tuple[int, Note]], stages: Sequence[Stage]) -> set[int]:
    """Sequence numbers of the notes that a later start of the same stage invalidates, and of alarms about answers that
    repeat and were discarded later."""
    void, standing, repeats = set[int](), list[int](), dict[int, list[int]]()
    ends = [stage.end.seq for stage in stages if stage.end is not None]
    for seq, note in notes:
        while ends and seq >= ends[0]:
            ends.pop(0)
            standing.clear()
        if note.kind in BEGUN:
            void.update(standing)
            standing.clear()
        elif note.kind == SET_ASIDE:
            standing.append(seq)
        elif note.kind == ALARM and note.model is not None and note.body.get("fault") == AnswerFault.REPEATED:
            repeats.setdefault(note.model, []).append(seq)
        elif note.kind == DISCARDED and note.model is not None:
            void.update(repeats.pop(note.model, ()))
    return void


Log = Callable[[bool], Iterable[Sequence[Row]]]
"""Returns the rows of the log in order: in whole commits, or in larger blocks."""


Steps = Generator[None, None, Machine]
"""A replay that can be stopped after each block of rows and each look that it adds; it returns the machine."""


def replay(
    log: Log, stages: Sequence[Stage], notes: Sequence[tuple[int, Note]], known_answers: KnownAnswers
) -> Machine:
    """Replay the whole log, stage by stage, and return the machine; `notes`: all notes of the log."""
    steps = replay_steps(log, stages, notes, known_answers)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            machine: Machine = end.value
            return machine


def replay_steps(
    log: Log, stages: Sequence[Stage], notes: Sequence[tuple[int, Note]], known_answers: KnownAnswers
) -> Steps:
    """Replay block by block.

    The number of answers that the core gets at a time matters only under caps, and only if the core keeps answers that
    no round requested, answers of other models count, or the cost of an answer is unbounded: then the log is replayed
    commit by commit, as in the run.
    """
    plans = [stage.setting.plan for stage in stages]
    is_capped = any(plan.budget.bought for plan in plans)
    is_unbounded = any(cost.is_unbounded for plan in plans for cost in plan.bench.worst_cost)
    has_returned = len(stages) > 1 or any(note.kind == SET_ASIDE for _, note in notes)
    in_commits = is_capped and (is_unbounded or has_returned)
    machine = yield from _replay(log(in_commits), stages, notes, known_answers)
    if is_capped and not in_commits and (machine.controller.set_aside or machine.core.has_others):
        return (yield from _replay(log(True), stages, notes, known_answers))
    return machine


def _replay(
    blocks: Iterable[Sequence[Row]],
    stages: Sequence[Stage],
    notes: Sequence[tuple[int, Note]],
    known_answers: KnownAnswers,
) -> Steps:
    void = void_notes(notes, stages)
    repeats_count = has_counted_repeats(note for _, note in notes)
    machine = Machine(stages[0].setting, regraded_at=_regraded_at(notes), repeats_count=repeats_count)
    following = iter(zip(stages, stages[1:], strict=False))
    stage = next(following, None)
    for block in blocks:
        rows = [row for row in block if row[0] not in void] if void else block
        while stage is not None and rows and rows[-1][0] >= (until := _end(stage[0]).seq):
            cut = bisect_left(rows, until, key=itemgetter(0))
            machine.handle(Replayed(rows[:cut]))
            rows = rows[cut:]
            yield from _begin(machine, *stage, known_answers)
            stage = next(following, None)
        machine.handle(Replayed(rows))
        yield
    while stage is not None:
        yield from _begin(machine, *stage, known_answers)
        stage = next(following, None)
    return machine


def has_counted_repeats(notes: Iterable[Note]) -> bool:
    """Whether an import has counted repeated answers as samples."""
    return any(note.kind == IMPORTED and note.body.get("repeats_count") for note in notes)


def _regraded_at(notes: Sequence[tuple[int, Note]]) -> int:
    """Where all answers were last graded anew, so that looks begin again; 0 if they never were."""
    return max(
        (seq for seq, note in notes if note.kind == REGRADED and note.body.get("opening") is not None), default=0
    )


def _end(stage: Stage) -> SettingsEnd:
    assert stage.end is not None
    return stage.end


def _begin(machine: Machine, previous: Stage, current: Stage, known_answers: KnownAnswers) -> Iterator[None]:
    end = _end(previous)
    yield from _take_missing_looks(machine, end)
    joining = set(current.setting.roster).difference(previous.setting.roster)
    returning = [model for model in joining if machine.account.models[model].answers]
    machine.handle(StageBegun(current.setting, known_answers(returning, end.seq) if returning else ()))


def _take_missing_looks(machine: Machine, end: SettingsEnd) -> Iterator[None]:
    """Take as many looks as the stage had taken, though answers that they counted were discarded later: without the
    models of these answers, and at last without new trials. What was decided about others stands, in the same looks."""
    controller = machine.controller
    while controller.taker.taken < end.looks:
        if controller.finished is None and (late := controller.awaited()):
            body = {"reason": "answers that its looks counted were discarded"}
            notes = [Note(SET_ASIDE, machine.setting.roster[position], body) for position in late]
            machine.handle(Replayed([(end.seq, note) for note in notes]))
        else:
            controller.look_again()
            machine.handle(Replayed(()))
        yield


def in_commits(rows: Iterable[tuple[float, Row]]) -> Iterator[list[Row]]:
    """Rows with the time of their commit, commit by commit."""
    block, time = list[Row](), 0.0
    for at, row in rows:
        if block and at != time:
            yield block
            block = []
        time = at
        block.append(row)
    if block:
        yield block
