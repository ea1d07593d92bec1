"""Exit codes tell a script how a run has ended."""

import pytest

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.core.types import Reason
from adaptive_eval.report.ending import Ending


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
