"""A loss is counted where it was noticed, which is before the trials that were stored with it."""

from contextlib import closing
from pathlib import Path

from fakes import HEADER, QUESTIONS, SKILLS, plan

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.settings import Budget, Pace, Trials
from adaptive_eval.core.types import Cost, Reason
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.scheduler.state import RunState, apply_stored
from adaptive_eval.store import AnswersLost, CommitBatch, Roster, RunReader, RunStarted, Store, TrialRecord


def first_round() -> list[TrialRecord]:
    answer = Answer(text="A", finish_reason="stop", seed=1, replica="r", latency=1.0)
    places = [(model, question.id, trial) for model in SKILLS for question in QUESTIONS for trial in range(2)]
    return [TrialRecord(*place, 0, answer, category=1, cost=Cost(tokens=20)) for place in places]


def new_state() -> RunState:
    """Of a run in which the first round alone takes 720 of 750 tokens."""
    settings = {"trials": Trials(2, 4), "pace": Pace(lookahead=0), "budget": Budget(tokens=750)}
    roster = Roster.of(SKILLS, (question.id for question in QUESTIONS))
    return RunState(Controller(plan(**settings)), roster)


def test_a_loss_that_ends_a_capped_run_together_with_the_end_of_a_round_ends_it_for_readers_too(
    tmp_path: Path,
) -> None:
    *before, last = first_round()
    loss = AnswersLost(last.model, 1, tokens=100)
    live = new_state()
    with closing(Store.open(tmp_path, HEADER).store) as store:
        store.commit(CommitBatch(before, events=[RunStarted()]))
        for record in before:
            live.apply(record.outcome())
        live.decide()
        live.apply(loss)  # it is noticed while the last answer is being stored
        live.decide()
        store.commit(CommitBatch([last], events=[loss]))
        live.apply(last.outcome())
        live.decide()
    assert live.controller.finished is Reason.BUDGET and not live.controller.looks
    read = new_state()
    with closing(RunReader.open(tmp_path)) as reader:
        apply_stored(read, reader, reader.events(), judged=False)
    assert read.controller.finished is Reason.BUDGET and not read.controller.looks
