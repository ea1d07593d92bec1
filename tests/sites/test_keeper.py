"""The keeper of a run's sites knows whether there is still a head, and what a head says of itself."""

import threading

import pytest
from patient_time import HANGS

from adaptive_eval.sites import keeper
from adaptive_eval.sites.keeper import HeadWatch, saying_so


def test_a_head_is_gone_when_it_has_been_silent_for_as_long_as_it_said_last() -> None:
    now = [100.0]
    watch = HeadWatch(10.0, lambda: now[0])
    now[0] += 9.0
    assert not watch.over
    watch.heard(30.0)
    now[0] += 29.0
    assert not watch.over, "it has spoken since, and asked for more patience"
    now[0] += 1.0
    assert watch.over
    watch.heard(5.0)
    assert not watch.over


def test_a_head_says_that_it_lives_while_it_does_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "MOST_SECONDS", 0.001)
    words, often = [0], threading.Event()

    def say() -> None:
        words[0] += 1
        if words[0] >= 5:
            often.set()

    with saying_so(say, 600.0):
        assert words[0] >= 1, "at once"
        assert often.wait(HANGS)
    after = words[0]
    assert not [one for one in threading.enumerate() if one.name == "adaptive-eval head"]
    assert words[0] == after
