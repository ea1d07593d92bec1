"""Exit codes tell a script how a run has ended."""

import pytest

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.core.types import NO_COST, Reason
from adaptive_eval.notes import AnswersLost, BatchEnded, Event, RunFinished, RunStarted, ServerReleased, TrialsRegraded
from adaptive_eval.report.ending import Ending, find_ending, status_at_end


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.SETTLED, ExitCode.REACHED),
        (Reason.OUT_OF_REACH, ExitCode.SPENT),
        (Reason.BUDGET, ExitCode.SPENT),
        (Reason.WALL_TIME, ExitCode.SPENT),
        (Reason.BLOCKED, ExitCode.ENDPOINTS),
        (None, ExitCode.STOPPED),
    ],
)
def test_only_a_run_that_has_decided_everything_has_reached_its_objective(
    reason: Reason | None, code: ExitCode
) -> None:
    assert Ending(reason=reason, results=None, trials=0).exit_code == code


@pytest.mark.parametrize(
    "later",
    [BatchEnded("ada", "k", "completed"), ServerReleased("ada"), AnswersLost("ada", 1, NO_COST)],
    ids=lambda event: event.KIND,
)
def test_what_supplies_note_after_the_end_changes_nothing_about_it(later: Event) -> None:
    events = [RunStarted(), RunFinished(Reason.WALL_TIME), later]
    assert find_ending(events, None, 72, Decisions()).exit_code == ExitCode.SPENT
    assert status_at_end(events, 72) == ("finished", "wall_time")


def test_a_run_that_has_stored_nothing_of_its_first_start_was_killed() -> None:
    assert status_at_end([], 0) == ("killed", None)
    assert find_ending([], None, 0, Decisions()).why.startswith("Killed: ")


def test_a_run_whose_answers_were_graded_again_is_finished_no_more() -> None:
    events = [RunStarted(), RunFinished(Reason.WALL_TIME), TrialsRegraded(72)]
    assert find_ending(events, None, 72, Decisions()).exit_code == ExitCode.STOPPED
    status, _ = status_at_end(events, 72)
    assert status == "stopped"
