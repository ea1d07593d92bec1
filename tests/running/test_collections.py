"""What a run tells the garbage collector to leave alone."""

import gc

import pytest

from adaptive_eval.running.no_pauses import short_collections


@pytest.mark.parametrize("before", [False, True])
def test_what_was_frozen_before_a_run_and_nothing_else_is_so_after_it(before: bool) -> None:
    gc.unfreeze()
    if before:
        gc.freeze()
    try:
        with short_collections():
            assert gc.get_freeze_count()
        assert bool(gc.get_freeze_count()) == before
    finally:
        gc.freeze()
