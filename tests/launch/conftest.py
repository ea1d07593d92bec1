"""A port, and the certainty that nothing is left behind."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import held_port
from processes import gone


@pytest.fixture
def port() -> Iterator[int]:
    """A port of its own; no process that has it in its command may be left when the test is over."""
    with held_port() as port:
        yield port
        assert gone(str(port)), "a server was left behind"


@pytest.fixture
def two_ports() -> Iterator[tuple[int, int]]:
    """The same for two servers."""
    with held_port() as first, held_port() as second:
        yield first, second
        assert gone(str(first)) and gone(str(second)), "a server was left behind"


@pytest.fixture(autouse=True)
def places_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a place that someone else on this machine has."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
