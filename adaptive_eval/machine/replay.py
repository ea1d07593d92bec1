"""A machine brought to the end of a stored log: the same for a start, a test and whoever wants to look into a run.

A *stage* is a configuration under which looks were taken, and that decides otherwise than the next one. A model that
was set aside because of its servers comes back with the next start, as if it had never been away; only in a stage that
is over, whose looks stand, it stays away as its last start has left it.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from adaptive_eval.machine.events import Replayed, Setting, StageBegun
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.records import BEGUN, SET_ASIDE, Note, Row
from adaptive_eval.machine.trial import Trial


class Stage(NamedTuple):
    """Settings, and where in the log they ended."""

    setting: Setting
    until: int | None = None
    """Sequence number of the note that says that they were changed; None for the settings of today."""


KnownAnswers = Callable[[Collection[int], int], Iterable[Trial]]
"""Stored answers of models, before a sequence number."""


def void_notes(notes: Sequence[tuple[int, Note]], stages: Sequence[Stage]) -> set[int]:
    """Sequence numbers of the notes that a later start of the same stage has made void."""
    void, standing = set[int](), list[int]()
    ends = [stage.until for stage in stages if stage.until is not None]
    for seq, note in notes:
        while ends and seq >= ends[0]:
            ends.pop(0)
            standing.clear()
        if note.kind in BEGUN:
            void.update(standing)
            standing.clear()
        elif note.kind == SET_ASIDE:
            standing.append(seq)
    return void


Log = Callable[[bool], Iterable[Sequence[Row]]]
"""Gives the rows of the log in their order: in whole commits, or in larger blocks."""


Steps = Generator[None, None, Machine]
"""A replay that can be given up after each block of rows; it returns the machine."""


def replay(log: Log, stages: Sequence[Stage], notes: Sequence[tuple[int, Note]], known: KnownAnswers) -> Machine:
    """A machine that has taken in the whole log, stage by stage; `notes`: all notes of the log."""
    steps = replay_steps(log, stages, notes, known)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            machine: Machine = end.value
            return machine


def replay_steps(log: Log, stages: Sequence[Stage], notes: Sequence[tuple[int, Note]], known: KnownAnswers) -> Steps:
    """A replay, block by block.

    How many answers the core is told at a time can matter only under caps, and only if it keeps answers that no round
    has asked for, answers of other models count, or nothing bounds what an answer costs: then the log is replayed
    commit by commit, as it was told.
    """
    plans = [stage.setting.plan for stage in stages]
    is_capped = any(plan.budget.bought for plan in plans)
    is_unbounded = any(cost.is_unbounded for plan in plans for cost in plan.bench.worst_cost)
    has_returned = len(stages) > 1 or any(note.kind == SET_ASIDE for _, note in notes)
    in_commits = is_capped and (is_unbounded or has_returned)
    machine = yield from _replay(log(in_commits), stages, notes, known)
    if is_capped and not in_commits and (machine.controller.set_aside or machine.has_others):
        return (yield from _replay(log(True), stages, notes, known))
    return machine


def _replay(
    blocks: Iterable[Sequence[Row]], stages: Sequence[Stage], notes: Sequence[tuple[int, Note]], known: KnownAnswers
) -> Steps:
    void = void_notes(notes, stages)
    machine, following = Machine(stages[0].setting), iter(zip(stages, stages[1:], strict=False))
    stage = next(following, None)
    for block in blocks:
        rows = [row for row in block if row[0] not in void] if void else block
        while stage is not None and rows and rows[-1][0] >= (until := _end(stage[0])):
            cut = bisect_left(rows, until, key=itemgetter(0))
            machine.handle(Replayed(rows[:cut]))
            rows = rows[cut:]
            _begin(machine, *stage, known)
            stage = next(following, None)
        machine.handle(Replayed(rows))
        yield
    while stage is not None:
        _begin(machine, *stage, known)
        stage = next(following, None)
    return machine


def _end(stage: Stage) -> int:
    assert stage.until is not None
    return stage.until


def _begin(machine: Machine, before: Stage, now: Stage, known: KnownAnswers) -> None:
    joining = set(now.setting.roster).difference(before.setting.roster)
    returning = [model for model in joining if machine.account.models[model].answers]
    machine.handle(StageBegun(now.setting, known(returning, _end(before)) if returning else ()))


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
