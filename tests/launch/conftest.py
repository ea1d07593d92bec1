"""A port, and the certainty that nothing is left behind."""

from collections.abc import Iterator

import pytest
from processes import gone

from adaptive_eval.launch.ports import free_ports


@pytest.fixture
def port() -> Iterator[int]:
    """A free port; no process that has it in its command may be left when the test is over."""
    port = next(free_ports())
    yield port
    assert gone(str(port), 2.0), "a server was left behind"
