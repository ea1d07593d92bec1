"""What a server says of its load, and what follows from it, without any server."""

from collections import deque
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.endpoints.load import (
    DOUBT_SECONDS,
    MARGIN,
    ServerLoad,
    Steering,
    grow_ceilings,
    parse_load,
)
from adaptive_eval.endpoints.replicas import RequestWindow

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a } b"} 12.0
vllm:num_requests_running{engine="1",model_name="a"} 3
vllm:num_requests_waiting{engine="0",model_name="a"} 4.0 1700000000000
vllm:num_requests_waiting{engine="1",model_name="a"} 1e1
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 4.0
vllm:num_requests_waiting_total 99
"""


def test_vllm_says_its_load_for_each_engine() -> None:
    assert parse_load(VLLM) == ServerLoad(15.0, 14.0)


def test_llama_server_says_the_same_of_its_slots() -> None:
    text = b"# TYPE x gauge\nllamacpp:requests_processing 4\nllamacpp:requests_deferred 20\nllamacpp:n_decode_total 7\n"
    assert parse_load(text) == ServerLoad(4.0, 20.0)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>welcome</html>",
        b"vllm:num_requests_waiting 3\n",
        b"vllm:num_requests_running 3\n",
        b"my_vllm:num_requests_running 3\nmy_vllm:num_requests_waiting 3\n",
        b"vllm:num_requests_running 3\nvllm:num_requests_waiting many\n",
        b"vllm:num_requests_running 3\nvllm:num_requests_waiting NaN\n",
        b"vllm:num_requests_running +Inf\nvllm:num_requests_waiting 3\n",
        b"vllm:num_requests_running 3\nvllm:num_requests_waiting -1\n",
    ],
)
def test_what_is_no_count_is_no_load(text: bytes) -> None:
    assert parse_load(text) is None


@given(st.binary(max_size=200))
def test_any_bytes_may_come(junk: bytes) -> None:
    load = parse_load(VLLM + junk)
    assert load is None or (load.running >= 15.0 and load.waiting >= 14.0)


def resized(ceiling: int, in_flight: int, factor: float | None) -> int:
    """What becomes of a window that is alone at its server."""
    if factor is None or factor > 1.0:
        return ceiling if factor is None else grow_ceilings([ceiling], factor - 1.0)[0]
    return min(ceiling, ceil(in_flight * factor)) if factor < 1.0 else ceiling


def test_windows_grow_by_one_share_together_and_the_smallest_first() -> None:
    assert grow_ceilings([8], 1 / 8) == [9]
    assert grow_ceilings([64, 64], 1.0) == [128, 128]
    assert grow_ceilings([3, 2, 3, 2], 1 / 8) == [3, 3, 3, 2]
    assert grow_ceilings([1, 1, 1], 1.0) == [2, 2, 2]


class Server:
    """A server of `places` whose answers all take `seconds` polls, and one client that keeps its window full."""

    def __init__(self, places: int, configured: int, start: int, polls: int = 3, others: int = 0) -> None:
        self.places, self.polls, self.others = places, polls, others
        self.window = RequestWindow(configured)
        self.window.steer(start)
        self.steering = Steering()
        self.ages: deque[int] = deque()
        self.now = 0.0
        self.idle = 0

    def poll(self) -> ServerLoad:
        """One second: answers come back, the window is filled up, the load is read."""
        running = max(0, min(len(self.ages), self.places - self.others))
        for at in range(running):
            self.ages[at] += 1
        while self.ages and self.ages[0] >= self.polls:
            self.ages.popleft()
        self.ages += [0] * (self.window.ceiling - len(self.ages))
        inside = len(self.ages) + self.others
        load = ServerLoad(float(min(inside, self.places)), float(max(0, inside - self.places)))
        self.idle += max(0, self.places - inside)
        self.now += 1.0
        move = self.steering.read(load, len(self.ages), len(self.ages) >= self.window.ceiling, self.now)
        if move is None:
            self.window.steer(self.window.configured)
        self.window.steer(resized(self.window.ceiling, len(self.ages), move))
        return load


@given(places=st.integers(1, 400), start=st.integers(1, 64), polls=st.integers(1, 8))
def test_a_server_is_full_and_few_wait_whatever_it_can_do(places: int, start: int, polls: int) -> None:
    server = Server(places, 1024, start, polls)
    for _ in range(60 + polls * (4 + start // places)):  # what was asked for too much must run, too
        server.poll()
    server.idle = 0
    for _ in range(20):
        load = server.poll()
        assert load.waiting <= max(1.0, places / 4)
    assert server.idle == 0


@given(before=st.integers(1, 300), after=st.integers(10, 300))
def test_it_follows_a_server_that_changes(before: int, after: int) -> None:
    server = Server(before, 1024, 32)
    for _ in range(60):
        server.poll()
    server.places = after
    for _ in range(120):
        server.poll()
    server.idle = 0
    for _ in range(20):
        assert server.poll().waiting <= max(1.0, after / 4)
    assert server.idle == 0


def test_the_configured_concurrency_is_the_most() -> None:
    server = Server(500, 48, 32)
    for _ in range(30):
        server.poll()
    assert server.window.ceiling == 48


def test_one_reading_alone_moves_nothing() -> None:
    steering = Steering()
    busy, calm = ServerLoad(4.0, 20.0), ServerLoad(4.0, 0.0)
    assert [steering.read(load, 24, True, 0.0) for load in (busy, calm, busy, calm)] == [1.0] * 4
    assert (steering.read(calm, 24, True, 0.0) or 0.0) > 1.0


def test_a_window_that_does_not_limit_is_left_alone() -> None:
    steering = Steering()
    assert {steering.read(load, 3, False, 0.0) for load in [ServerLoad(4.0, 0.0), ServerLoad(4.0, 50.0)] * 5} == {1.0}


def test_growth_is_careful_after_a_queue_was_seen() -> None:
    steering = Steering()
    steering.read(ServerLoad(8.0, 1.0), 9, True, 0.0)
    moves = [steering.read(ServerLoad(8.0, 0.0), 9, True, 0.0) for _ in range(10)]
    assert moves == [1.0, 1.125, 1.0, 1.25, 1.0, 1.5, 1.0, 2.0, 1.0, 2.0]


def test_a_window_shrinks_by_half_at_most() -> None:
    steering = Steering()
    moves = [steering.read(ServerLoad(1.0, 1000.0), 64, True, 0.0) for _ in range(2)]
    assert moves == [1.0, 0.5]
    assert resized(64, 64, moves[1]) == 32


def test_others_who_fill_the_server_are_made_room_for_in_proportion() -> None:
    """Two clients of a server with 40 places, of which one keeps 24 in flight."""
    server = Server(40, 1024, 64, others=24)
    for _ in range(40):
        server.poll()
    assert 16 <= server.window.ceiling <= 16 + 40 / 4


def test_a_reading_that_does_not_follow_is_not_believed() -> None:
    """A gauge that stands still, while there is nothing that it could mean."""
    window, steering, now = RequestWindow(64), Steering(), 0.0
    sizes = []
    for _ in range(20):
        now += 1.0
        move = steering.read(ServerLoad(4.0, 5.0), window.ceiling, True, now)
        window.steer(64 if move is None else resized(window.ceiling, window.ceiling, move))
        sizes.append(window.ceiling)
    assert sizes[:4] == [64, 32, 32, 64] and set(sizes[4:]) == {64}
    assert steering.read(ServerLoad(4.0, 5.0), 64, True, now) == 1.0
    late = now + DOUBT_SECONDS
    assert [steering.read(ServerLoad(4.0, 5.0), 64, True, late + i) for i in range(2)] == [1.0, 0.5]


def test_among_many_others_nothing_is_gained_by_staying_away() -> None:
    """A thousand requests of others wait: who leaves the line leaves it to them."""
    server = Server(100, 64, 64, others=1000)
    sizes = []
    for _ in range(30):
        server.ages.clear()  # answers come back in their turn, whoever else is there
        server.poll()
        sizes.append(server.window.ceiling)
    assert sizes[-1] == 64 and min(sizes) == 32


def test_a_steered_window_still_halves_when_refused() -> None:
    window = RequestWindow(64)
    window.steer(32)
    window.on_refusal(1.0, 2.0)
    assert (window.size, window.ceiling) == (16, 32)
    window.steer(40)
    assert (window.size, window.ceiling) == (16, 40)
    window.steer(8)
    assert (window.size, window.ceiling) == (8, 8)
    window.steer(0)
    assert window.size == 1


def test_after_a_queue_a_share_of_what_runs_is_to_wait() -> None:
    steering = Steering()
    move = [steering.read(ServerLoad(64.0, 30.0), 94, True, 0.0) for _ in range(2)][1]
    assert resized(94, 94, move) == round(64 * (1 + MARGIN))
