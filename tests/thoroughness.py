"""On how many examples a property is tried: on a fifth of them while one works, on all where `THOROUGH` is set."""

import os

THOROUGH = bool(os.environ.get("THOROUGH"))
FEWEST = 6


def examples(most: int) -> int:
    """So many of at most these."""
    return most if THOROUGH else min(most, max(most // 5, FEWEST))
