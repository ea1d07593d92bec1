"""What a run tells the garbage collector to leave alone."""

import gc
from collections.abc import Iterator

import pytest

from adaptive_eval.running import garbage
from adaptive_eval.running.garbage import MADE, disable_collections, enable_collections, short_collections

USUAL = (700, 10, 10)


@pytest.fixture(autouse=True)
def as_a_program_finds_it() -> Iterator[None]:
    """Nothing is frozen, and the threshold is Python's; the tests have theirs again afterwards."""
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(*USUAL)
    yield
    gc.freeze()
    gc.set_threshold(*before)


@pytest.mark.parametrize("before", [False, True])
def test_what_was_frozen_before_a_run_and_nothing_else_is_so_after_it(before: bool) -> None:
    if before:
        gc.freeze()
    with short_collections():
        assert gc.get_freeze_count()
        assert gc.get_threshold()[0] == (USUAL[0] if before else MADE)
    assert bool(gc.get_freeze_count()) == before and gc.get_threshold() == USUAL


def test_a_program_that_looks_as_seldom_keeps_its_own_ways() -> None:
    gc.set_threshold(2 * MADE, 5, 5)
    with short_collections():
        assert not gc.get_freeze_count() and gc.get_threshold() == (2 * MADE, 5, 5)
    assert gc.get_threshold() == (2 * MADE, 5, 5)


def test_a_command_is_loaded_without_collections_and_its_run_still_has_short_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "_loaded_is_frozen", False)
    disable_collections()
    assert not gc.isenabled()
    enable_collections()
    assert gc.isenabled() and (loaded := gc.get_freeze_count())
    with short_collections():
        assert gc.get_threshold()[0] == MADE
    assert gc.get_threshold() == USUAL and gc.get_freeze_count() >= loaded


def test_a_program_that_loads_us_for_itself_has_its_collections_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_loaded_is_frozen", False)
    enable_collections()
    assert gc.isenabled() and not gc.get_freeze_count()
