"""Opening and closing the small run of `two_by_two`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from two_by_two import HEADER

from adaptive_eval.store.write import RunStore

OpenStore = Callable[[], RunStore]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "two-by-two"


@pytest.fixture
def open_store(directory: Path) -> Iterator[OpenStore]:
    """Opens or reopens the run of this test, and closes what the test leaves open."""
    opened: list[RunStore] = []

    def open_it() -> RunStore:
        store = RunStore.open(directory, HEADER)
        opened.append(store)
        return store

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> RunStore:
    """The new run of this test."""
    return open_store()
