"""Opening and closing the small run of `two_by_two`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from two_by_two import HEADER

from adaptive_eval.store import RunHeader, Store


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "two-by-two"


@pytest.fixture
def answers() -> str:
    """Where texts are kept; a test may ask for another place."""
    return "ledger"


@pytest.fixture
def small_segments(answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of two trials, whose texts are moved however short they are."""
    if answers == "ledger":
        return
    from adaptive_eval.store.segments import moving  # an extra

    monkeypatch.setattr(moving, "SEGMENT_TRIALS", 2)
    monkeypatch.setattr(moving, "SHORTEST_MOVED", 1)


@pytest.fixture
def open_store(directory: Path, answers: str, small_segments: None) -> Iterator[Callable[..., Store]]:
    """Opens the run of this test, again where it was closed; closes what the test leaves open."""
    opened: list[Store] = []

    def open_it(header: RunHeader = HEADER) -> Store:
        store = Store.open(directory, header, answers).store
        opened.append(store)
        return store

    yield open_it
    for store in opened:
        store.close()
