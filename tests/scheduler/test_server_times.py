"""For how long servers are held: added up over all starts, with nothing lost by a kill and nothing made up."""

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import SKILLS, Bed

from adaptive_eval.scheduler.meter import UNSAID_SECONDS, ServerTimes
from adaptive_eval.store import HeldTime, RunReader, ServerDied, ServerLaunched, ServerLaunching, ServerReleased
from adaptive_eval.supply.types import Lane


class Clock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lanes(bed: Bed, gpus: float = 2.0) -> list[Lane]:
    each = [bed._lane(name) for name in SKILLS]
    return [replace(lane, price=replace(lane.price, gpus=gpus)) for lane in each]


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_the_time_that_a_server_takes_to_start_counts(bed: Bed) -> None:
    clock = Clock()
    times = ServerTimes(lanes(bed), {0, 1, 2}, {}, clock=clock)
    for start in (180.0, 20.0):
        times.hear(ServerLaunched("ada", seconds=start))
        clock.now += 1.0
        times.hear(ServerReleased("ada"))
    assert times.held_times() == {"ada": HeldTime(202.0, 404.0)}


def test_a_server_that_never_comes_up_is_held_while_it_loads(bed: Bed) -> None:
    """Until it is given up, or the run is killed; the seconds of one that comes up count once."""
    clock = Clock()
    times = ServerTimes(lanes(bed), {0, 1, 2}, {}, clock=clock)
    for name in ("ada", "bob"):
        times.hear(ServerLaunching(name))
        clock.now += 60.0
    times.hear(ServerReleased("ada"))
    assert times.held_times() == {"ada": HeldTime(120.0, 240.0), "bob": HeldTime(60.0, 120.0, up=True)}
    times.hear(ServerLaunched("bob", seconds=60.0))
    clock.now += 1.0
    assert times.held_times() == {"ada": HeldTime(120.0, 240.0), "bob": HeldTime(61.0, 122.0, up=True)}


def test_two_servers_in_turn_are_never_held_at_once(bed: Bed) -> None:
    """The loop hears of the first one's end, and of the second one's start, half a second late."""
    clock = Clock()
    times = ServerTimes(lanes(bed), {0, 1, 2}, {}, clock=clock)
    times.hear(ServerLaunching("ada"))
    clock.now += 10.0
    times.hear(ServerReleased("ada"))
    times.hear(ServerLaunching("bob"))
    clock.now += 1.0
    times.hear(ServerLaunched("bob", seconds=1.5))
    assert times.held_times() == {"ada": HeldTime(10.0, 20.0), "bob": HeldTime(1.0, 2.0, up=True)}


def test_a_server_of_the_run_is_held_until_it_is_stopped(bed: Bed) -> None:
    clock = Clock()
    times = ServerTimes(lanes(bed), {0, 1, 2}, {}, clock=clock)
    assert times.held_times() == {}
    times.hear(ServerLaunched("ada"))
    clock.now += 10.0
    times.sent(0)
    times.quiet(0)
    assert times.held_times() == {"ada": HeldTime(10.0, 20.0, up=True)}, "idle or not"
    times.hear(ServerDied("ada"))
    clock.now += 100.0
    times.hear(ServerLaunched("ada"))
    times.hear(ServerLaunched("bob"))
    clock.now += 5.0
    times.hear(ServerReleased("ada"))
    clock.now += 1.0
    assert times.held_times() == {"ada": HeldTime(15.0, 30.0), "bob": HeldTime(6.0, 12.0, up=True)}
    times.close()
    clock.now += 1.0
    assert times.held_times() == {"ada": HeldTime(15.0, 30.0), "bob": HeldTime(6.0, 12.0)}


def test_what_a_site_has_held_without_a_head_counts_when_it_is_found_again(bed: Bed) -> None:
    before = {"ada": HeldTime(10.0, 20.0, up=True)}
    times = ServerTimes(lanes(bed), {0, 1, 2}, before, clock=Clock())
    times.hear(ServerLaunched("ada", on="site 1", without_head=300.0))
    seconds = 310.0 + UNSAID_SECONDS
    assert times.held_times() == {"ada": HeldTime(seconds, 2.0 * seconds, up=True)}


def test_nothing_is_held_for_who_is_asked_through_a_batch_service(bed: Bed) -> None:
    clock = Clock()
    times = ServerTimes(lanes(bed), {0}, {}, {1}, clock)
    for model in (1, 2):
        times.sent(model)
    clock.now += 3600.0
    for model in (1, 2):
        times.quiet(model)
    assert times.held_times() == {"cyd": HeldTime(3600.0, 7200.0)}


def test_servers_of_others_are_held_from_the_first_to_the_last_request(bed: Bed) -> None:
    clock = Clock()
    times = ServerTimes(lanes(bed), (), {}, clock=clock)
    clock.now += 7.0
    times.sent(1)
    clock.now += 3.0
    times.quiet(1)
    clock.now += 50.0
    assert times.held_times() == {"bob": HeldTime(3.0, 6.0)}, "nothing was wanted since"
    times.sent(1)
    clock.now += 4.0
    assert times.held_times() == {"bob": HeldTime(57.0, 114.0, up=True)}, "something was, so that they had to stay"
    times.close()
    clock.now += 4.0
    assert times.held_times() == {"bob": HeldTime(57.0, 114.0)}


def test_starts_add_up_and_a_kill_costs_what_it_may_have_left_unsaid(bed: Bed) -> None:
    clock = Clock()
    before = {"ada": HeldTime(15.0, 30.0), "bob": HeldTime(6.0, 6.0, up=True), "gone": HeldTime(1.0, 1.0)}
    times = ServerTimes(lanes(bed), {0, 1, 2}, before, clock=clock)
    times.hear(ServerLaunched("ada"))
    clock.now += 1.0
    assert times.held_times() == {
        "ada": HeldTime(16.0, 32.0, up=True),
        "bob": HeldTime(6.0 + UNSAID_SECONDS, 6.0 + 2.0 * UNSAID_SECONDS),
        "gone": HeldTime(1.0, 1.0),
    }


async def test_a_run_stores_it(bed: Bed) -> None:
    await bed.start()
    with_one = RunReader.open(bed.directory)
    held = with_one.held_times()
    with_one.close()
    assert set(held) == set(SKILLS)
    assert all(one.seconds > 0.0 and one.gpu_seconds == 0.0 and not one.up for one in held.values())


def test_every_server_of_a_model_counts_that_is_up_at_the_same_time(bed: Bed) -> None:
    clock = Clock()
    times = ServerTimes(lanes(bed), {0, 1, 2}, {}, clock=clock)
    times.hear(ServerLaunched("ada", on="0"))
    clock.now += 10.0
    times.hear(ServerLaunched("ada", on="1"))
    clock.now += 1.0
    times.hear(ServerDied("ada", on="1"))
    times.hear(ServerDied("ada", on="1"))
    clock.now += 5.0
    assert times.held_times() == {"ada": HeldTime(17.0, 34.0, up=True)}, "16 seconds on one place, one on the other"
    times.hear(ServerReleased("ada", on="0"))
    assert times.held_times() == {"ada": HeldTime(17.0, 34.0)}


def at_one_address(bed: Bed) -> list[Lane]:
    return [replace(lane, addresses=("http://one/v1",)) for lane in lanes(bed)]


def test_an_address_that_several_models_hold_counts_once(bed: Bed) -> None:
    clock = Clock()
    times = ServerTimes(at_one_address(bed), (), {}, clock=clock)
    for model in range(3):
        times.sent(model)
    clock.now += 12.0
    times.quiet(0)
    assert [held.seconds for held in times.held_times().values()] == [4.0, 4.0, 4.0]
    clock.now += 8.0
    seconds = {name: held.seconds for name, held in times.held_times().items()}
    assert seconds == {"ada": 4.0, "bob": 8.0, "cyd": 8.0}
    times.close()
    clock.now += 100.0
    assert sum(held.seconds for held in times.held_times().values()) == 20.0
    assert {held.gpu_seconds / held.seconds for held in times.held_times().values()} == {2.0}


def test_models_at_one_address_one_after_the_other_count_for_themselves(bed: Bed) -> None:
    clock = Clock()
    times = ServerTimes(at_one_address(bed), (), {}, clock=clock)
    for model in range(3):
        times.sent(model)
        clock.now += 5.0
        times.quiet(model)
    assert [held.seconds for held in times.held_times().values()] == [5.0, 5.0, 5.0]


def test_a_model_at_two_addresses_shares_one_of_them(bed: Bed) -> None:
    clock = Clock()
    ada, bob, cyd = at_one_address(bed)
    ada = replace(ada, addresses=("http://one/v1", "http://two/v1"))
    times = ServerTimes([ada, bob, replace(cyd, addresses=())], (), {}, clock=clock)
    for model in range(3):
        times.sent(model)
    clock.now += 8.0
    assert {name: held.seconds for name, held in times.held_times().items()} == {"ada": 6.0, "bob": 4.0, "cyd": 8.0}
