"""How long a server waits for answers of other models before it is stopped."""

from collections.abc import Sequence

from adaptive_eval.store import ServerLaunched
from adaptive_eval.supply.idle_servers import LEAST_SECONDS, IdleServers
from adaptive_eval.supply.types import Supply

ADA, BOB, CYD = range(3)


class Waiting(Supply):
    """A run whose clock, next look and batches are what a test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.next_look: Sequence[int] = ()
        self.pending_models: set[int] = set()
        self.back: float | None = None
        """When the batch is expected."""
        self.waits = IdleServers(["ada", "bob", "cyd"], self, clock=lambda: self.now)

    def is_pending(self, model: int) -> bool:
        return model in self.pending_models

    def expected_wait(self, model: int) -> float | None:
        assert model in self.pending_models
        return None if self.back is None else self.back - self.now

    def at(self, now: float, *, idle: bool = True) -> bool:
        """Whether ada is to be stopped."""
        self.now = now
        return self.waits.is_idle_for_long(ADA, self.next_look if idle else ())


def a_wait(start: float) -> Waiting:
    """The next look waits for a batch of bob; ada's server took so long to start."""
    one = Waiting()
    one.waits.hear(ServerLaunched("ada", seconds=start))
    one.next_look, one.pending_models = (ADA, BOB), {BOB}
    return one


def test_a_server_waits_for_a_batch_for_as_long_as_it_took_to_start() -> None:
    one = a_wait(30.0)
    assert one.waits.awaited_batches(one.next_look) == ("bob",)
    assert [one.at(now) for now in (100.0, 129.0, 130.0)] == [False, False, True]


def test_where_a_batch_is_expected_later_than_a_start_takes_the_server_does_not_wait() -> None:
    one = a_wait(30.0)
    one.back = 1000.0
    assert one.at(0.0) and one.at(969.0)
    assert not a_wait(30.0).at(0.0)


def test_a_batch_that_is_soon_due_is_waited_for_and_one_that_is_late_no_longer_than_a_start() -> None:
    one = a_wait(30.0)
    one.back = 1000.0
    assert [one.at(now) for now in (980.0, 1000.0, 1009.0, 1010.0)] == [False, False, False, True]


def test_its_wait_begins_anew_when_it_had_something_to_do_or_was_started() -> None:
    one = a_wait(30.0)
    assert not one.at(0.0) and not one.at(20.0, idle=False) and not one.at(40.0) and one.at(70.0)
    one.waits.hear(ServerLaunched("ada", seconds=5.0))
    assert not one.at(71.0) and one.at(76.0), "the last start counts: one that slept is there sooner"


def test_answers_that_are_asked_directly_are_waited_for_as_long_as_a_start_and_half_a_minute_at_least() -> None:
    one = a_wait(100.0)
    one.pending_models = set()
    assert one.waits.awaited_batches(one.next_look) == ()
    assert [one.at(now) for now in (0.0, 99.0, 100.0)] == [False, False, True]
    soon = a_wait(1.0)
    soon.pending_models = set()
    assert [soon.at(now) for now in (0.0, LEAST_SECONDS - 1.0, LEAST_SECONDS)] == [False, False, True]


def test_nobody_is_stopped_who_waits_for_nobody() -> None:
    one = a_wait(1.0)
    one.next_look = ()
    assert not one.at(0.0) and not one.at(1e6)
