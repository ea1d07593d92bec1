"""What a model server says of its own load, in the Prometheus text of its `/metrics`.

vLLM has a gauge of the sequences that it computes and one of those that wait, for each engine; llama-server has the
same of its slots. A router that passes on the gauges of several servers says their sum.
"""

import re
from math import isfinite
from typing import NamedTuple

_GAUGE = re.compile(
    rb"^(?:vllm:num_requests_(running|waiting)|llamacpp:requests_(processing|deferred))(?:\{[^\n]*\})?[ \t]+(\S+)",
    re.MULTILINE,
)


class Load(NamedTuple):
    """Sequences that a server computes, and those that wait until it can."""

    running: float
    waiting: float

    @property
    def inside(self) -> float:
        """All that it has."""
        return self.running + self.waiting


def load_in(metrics: bytes) -> Load | None:
    """The load, summed over engines; None where either gauge is missing or is no count."""
    sums: dict[bool, float] = {}
    for match in _GAUGE.finditer(metrics):
        runs = match[1] == b"running" or match[2] == b"processing"
        try:
            value = float(match[3])
        except ValueError:
            return None
        if not (isfinite(value) and value >= 0.0):
            return None
        sums[runs] = sums.get(runs, 0.0) + value
    return Load(sums[True], sums[False]) if len(sums) == 2 else None
