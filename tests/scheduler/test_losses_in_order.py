"""A loss counts where it was noticed among the looks, for whoever goes on with a run or reads it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from fakes import HEADER, QUESTIONS, SKILLS, plan
from played import Played, prepared

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.settings import Budget, Pace, Trials
from adaptive_eval.core.types import Ask, Cost, Reason
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.record.restore import StoredRun
from adaptive_eval.scheduler.losses import with_losses_in_place
from adaptive_eval.scheduler.state import RunState, apply_stored, stored_records
from adaptive_eval.store import (
    AnswersLost,
    CommitBatch,
    Event,
    Roster,
    RunReader,
    RunResumed,
    RunStarted,
    SettingsChanged,
    Store,
    TrialRecord,
    TrialsRegraded,
    events_of_kind,
)

ROSTER = Roster.of(SKILLS, (question.id for question in QUESTIONS))
RIGHT = (5, 3, 2)
"""How many questions each model answers."""


class Run:
    """A run with rounds of 18 trials, which take 20 tokens each at most; there are 600 tokens."""

    def __init__(self, directory: Path, used: int) -> None:
        """`used`: tokens of each answer."""
        self.store = Store.open(directory, HEADER).store
        self.store.commit(CommitBatch(events=[RunStarted()]))
        self.state, self.used = new_state(), used
        self.state.decide()
        self._events: list[Event] = []

    @property
    def controller(self) -> Controller:
        return self.state.controller

    def answer(self, asks: Sequence[Ask]) -> None:
        answer = Answer(text="A", finish_reason="stop", seed=1, replica="r", latency=1.0)
        records = [
            TrialRecord(
                list(SKILLS)[ask.model],
                QUESTIONS[ask.question].id,
                ask.trial,
                ask.round,
                answer,
                category=int(ask.question < RIGHT[ask.model]),
                cost=Cost(tokens=self.used),
            )
            for ask in asks
        ]
        self.store.commit(CommitBatch(records, events=self._events))
        self._events = []
        for record in records:
            self.state.apply(record.outcome())
        self.state.decide()

    def lose(self, tokens: int, *, killed: bool = False) -> None:
        """A loss is counted when it is noticed, and stored with the next trials."""
        event = self.state.placed(AnswersLost("ada", 1, tokens=tokens, killed=killed))
        self._events.append(event)
        self.state.apply(event)
        self.state.decide()


def new_state() -> RunState:
    settings = {"trials": Trials(1, 4), "policy": Uniform(), "pace": Pace(lookahead=0), "budget": Budget(tokens=600)}
    return RunState(Controller(plan(**settings)), ROSTER)


def end_by_a_loss(run: Run) -> None:
    """A loss ends the run while the answer that completes the first round is being stored."""
    *before, last = run.controller.ask(99)
    run.answer(before)
    run.lose(300)
    run.answer([last])
    assert run.controller.finished is Reason.BUDGET and not run.controller.looks


def lose_in_the_second_round(run: Run) -> None:
    """A loss is noticed when so many answers of a round are there that what they left of their reserve bears it."""
    run.answer(run.controller.ask(99))
    *before, last = run.controller.ask(99)
    run.answer(before)
    run.lose(100)
    run.answer([last])
    assert len(run.controller.looks) == 2 and run.controller.finished


def lose_by_a_kill(run: Run) -> None:
    """What was in flight at a kill is counted once the looks are taken to which stored answers lead."""
    run.answer(run.controller.ask(99))
    run.answer(run.controller.ask(99))
    run.lose(100, killed=True)
    run.answer([])
    assert len(run.controller.looks) == 2


def resumed(reader: RunReader) -> RunState:
    state = new_state()
    for record in stored_records(reader, judged=False):
        state.apply(record)
    state.decide()
    return state


def read(reader: RunReader) -> RunState:
    state = new_state()
    apply_stored(state, reader, reader.events(), judged=False)
    return state


def read_during_another_start(reader: RunReader) -> RunState:
    state = new_state()
    apply_stored(state, reader, [*reader.events(), RunResumed(at=reader.events()[-1].at + 1.0)], judged=False)
    return state


@pytest.mark.parametrize("replay", [resumed, read, read_during_another_start])
@pytest.mark.parametrize(("lead", "used"), [(end_by_a_loss, 20), (lose_in_the_second_round, 10), (lose_by_a_kill, 10)])
def test_the_looks_of_a_start_with_losses_are_those_of_whoever_replays_it(
    tmp_path: Path, lead: Callable[[Run], None], used: int, replay: Callable[[RunReader], RunState]
) -> None:
    run = Run(tmp_path, used)
    with closing(run.store):
        lead(run)
    with closing(RunReader.open(tmp_path)) as reader:
        found = replay(reader).controller
    assert (found.looks, found.finished) == (run.controller.looks, run.controller.finished)


def test_a_stage_with_losses_is_played_to_its_last_look_under_new_caps(tmp_path: Path) -> None:
    trials = {"min": 1, "max": 10, "policy": "uniform"}
    worst = prepared(tmp_path).plan.bench.worst_cost[0].tokens
    cap = 18 * 30 + 18 * worst + 50
    run = Played(tmp_path / "run", prepared(tmp_path, trials=trials, budget={"tokens": cap}))
    run.step(18)
    *before, last = run.controller.ask(99)
    run.answer(before)
    loss = run.controller.new_loss(0, Cost(tokens=100))
    run.controller.lose([loss])
    run.commit([], [], [AnswersLost("ada", 1, tokens=100, looks=loss.looks, ended=loss.ended or None)])
    run.answer([last])
    run.close()
    looks = run.controller.looks
    assert len(looks) == 2
    Store.open(run.directory, prepared(tmp_path, trials=trials, budget={"tokens": 2 * cap}).header).store.close()
    with closing(RunReader.open(run.directory)) as reader:
        stage = StoredRun(reader).plan.before
    assert stage is not None and stage.run.looks == looks


# -- where it counts today -------------------------------------------------------------------------------------------

ENDED = AnswersLost("ada", 1, tokens=100, looks=2, ended=True, at=5.0)


def placed(*events: Event, last_look: float = 4.0) -> tuple[int | None, bool | None]:
    (found,) = events_of_kind(list(with_losses_in_place(events, {1: last_look})), AnswersLost)
    return found.looks, found.ended


def test_a_loss_has_ended_a_run_until_settings_change_or_another_look_is_stored() -> None:
    assert placed(ENDED, RunResumed(at=6.0)) == (2, True)
    assert placed(ENDED, SettingsChanged(at=6.0)) == (2, None)
    assert placed(ENDED, last_look=6.0) == (2, None)


def test_losses_before_a_run_was_begun_anew_by_other_grades_count_before_its_first_look() -> None:
    assert placed(ENDED, TrialsRegraded(9, opening=3, at=6.0)) == (None, None)
    assert placed(ENDED, TrialsRegraded(9, at=6.0)) == (2, True), "answers that had no grade are graded"
    assert placed(TrialsRegraded(9, opening=3, at=3.0), ENDED) == (2, True)
