"""Queues side by side: each as a server of its own has it."""

import numpy as np
import pytest

from adaptive_eval.study.servers import SimulatedHost, TrialLoad
from adaptive_eval.study.slots import SlotQueues


@pytest.mark.parametrize("seed", range(4))
def test_each_queue_is_served_as_by_a_server_of_its_own(seed: int) -> None:
    """Loads of any size come before and after the last ones have ended; some have more slots than trials."""
    rng = np.random.default_rng(seed)
    slots = np.array([1, 2, 3, 5, 64])
    rounds = [rng.integers(0, 12, len(slots)) for _ in range(8)]
    queues = SlotQueues(slots, np.sum(rounds, axis=0))
    hosts = [SimulatedHost((0,), own) for own in slots.tolist()]
    now = np.zeros(len(slots))
    for sizes in rounds:
        seconds = rng.exponential(10.0, sizes.sum())
        ends = queues.serve(sizes, seconds, now)
        for host, own, at, end in zip(hosts, np.split(seconds, np.cumsum(sizes)[:-1]), now, ends, strict=True):
            load = TrialLoad(0, own)
            host.issue(load, float(at))
            assert end == (load.end if len(own) else 0.0)
        now = now + rng.exponential(10.0, len(slots))
