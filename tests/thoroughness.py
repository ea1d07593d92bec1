"""On how many examples a property is tried: on a third of them while one works, on all where `THOROUGH` is set."""

import os

THOROUGH = bool(os.environ.get("THOROUGH"))
FEWEST = 8


def examples(most: int) -> int:
    """So many of at most these."""
    return most if THOROUGH else min(most, max(most // 3, FEWEST))
