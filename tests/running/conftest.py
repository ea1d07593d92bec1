"""What tests of judged runs share."""

from collections.abc import Iterator

import pytest
from live_runs import small_world

from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving


@pytest.fixture(scope="session")
def fair_url() -> Iterator[str]:
    """A server of the small world, and of a judge that makes no mistakes."""
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge())) as url:
        yield url
