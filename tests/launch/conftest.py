"""A port, and the certainty that nothing is left behind."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import gone

from adaptive_eval.launch.command import free_ports


@pytest.fixture
def port() -> Iterator[int]:
    """A free port; no process that has it in its command may be left when the test is over."""
    port = next(free_ports())
    yield port
    assert gone(str(port)), "a server was left behind"


@pytest.fixture
def two_ports() -> Iterator[tuple[int, int]]:
    """The same for two servers."""
    ports = free_ports()
    two = next(ports), next(ports)
    yield two
    assert all(gone(str(port)) for port in two), "a server was left behind"


@pytest.fixture(autouse=True)
def places_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a place that someone else on this machine has."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
