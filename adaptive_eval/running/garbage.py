"""When Python looks for garbage, for which it walks over objects that are needed to the end as well."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MADE = 10_000
"""Objects, after which it is looked for cycles among them."""

_loaded_is_frozen = False
"""Whether what is frozen is what the command line has loaded."""


def disable_collections() -> None:
    """Collect no garbage while a command is loaded: modules stay, and scanning them takes a fifth of a start."""
    gc.disable()


def enable_collections() -> None:
    """Collect garbage from here on, but never walk over what was loaded."""
    global _loaded_is_frozen
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
        _loaded_is_frozen = True


def collect_less() -> None:
    """Have the garbage collector look less often, for as long as this process lives."""
    gc.collect(1)  # what is young; to look through all would take as long as one of those pauses
    gc.freeze()
    gc.set_threshold(MADE, *gc.get_threshold()[1:])


@contextmanager
def short_collections() -> Iterator[None]:
    """Keep what is there by now out of the garbage collector's sight, and have it look less often.

    The modules alone are some 10^5 objects, and a full collection goes through them all, which takes 40 to 60 ms. What
    comes later is let go of as soon as nobody needs it, but for the few cycles that errors make: those are looked for
    after every `MADE` objects instead of 700. What was garbage before waits until the run is over, rather than that
    the run waits for it.
    A program that has done so for itself keeps what it froze.
    """
    before = gc.get_threshold()
    if before[0] >= MADE or (gc.get_freeze_count() and not _loaded_is_frozen):  # which counts up to a million, in 20 ms
        yield
        return
    collect_less()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not _loaded_is_frozen:
            gc.unfreeze()
