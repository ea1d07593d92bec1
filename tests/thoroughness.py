"""On how many examples a property is tried: on a fifth of them while one works, on all where `THOROUGH` is set."""

import os

from hypothesis import HealthCheck, Phase, settings

THOROUGH = bool(os.environ.get("THOROUGH"))
FEWEST = 6


def examples(most: int) -> int:
    """So many of at most these."""
    return most if THOROUGH else min(most, max(most // 5, FEWEST))


def only_drawn(lives: int) -> settings:
    """So many whole lives of runs, neither kept nor made smaller where one fails: that would take too long."""
    return settings(
        max_examples=lives,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
