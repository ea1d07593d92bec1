"""What a script is told of how a run has ended."""

from pathlib import Path
from typing import Any, cast

import pytest

from adaptive_eval.core.types import Reason
from adaptive_eval.errors import ExitCode
from adaptive_eval.record.ending import Ended


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
    no_status = cast(Any, None)
    ended = Ended(reason, status=no_status, results=None, directory=Path(), lost={}, fatal_error=None, servers_up=0)
    assert ended.exit_code == code
