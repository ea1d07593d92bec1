"""Opening and closing the small run of `two_by_two`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from two_by_two import HEADER

from adaptive_eval.store.header import RunHeader
from adaptive_eval.store import Store


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "two-by-two"


@pytest.fixture
def open_store(directory: Path) -> Iterator[Callable[..., Store]]:
    """Opens the run of this test, again where it was closed; closes what the test leaves open."""
    opened: list[Store] = []

    def open_it(header: RunHeader = HEADER) -> Store:
        store = Store.open(directory, header).store
        opened.append(store)
        return store

    yield open_it
    for store in opened:
        store.close()
