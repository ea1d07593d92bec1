"""What would stop the loop of a run for a moment, done before it begins or kept out of it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from adaptive_eval.core import Bench, Budget, Controller, Outcome, Plan
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.policies import UnresolvedPairs

MADE = 10_000
"""Objects, after which it is looked for cycles among them."""


def collect_less() -> None:
    """Have the garbage collector look less often, for as long as this process lives."""
    gc.collect(1)  # what is young; to look through all would take as long as one of those pauses
    gc.freeze()
    gc.set_threshold(MADE, *gc.get_threshold()[1:])


@contextmanager
def short_collections() -> Iterator[None]:
    """Keep what is loaded by now out of the garbage collector's sight, and have it look less often.

    The modules alone are some 10^5 objects, and a full collection goes through them all, which takes 40 to 60 ms. What
    comes later is let go of as soon as nobody needs it, but for the few cycles that errors make: those are looked for
    after every `MADE` objects instead of 700. What was garbage before waits until the run is over, rather than that
    the run waits for it.
    A program that has done so for itself keeps what it froze.
    """
    before = gc.get_threshold()
    if before[0] >= MADE or gc.get_freeze_count():  # to count them takes 20 ms where they are a million
        yield
        return
    collect_less()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def warm_up(plan: Plan) -> None:
    """Take one look at a toy: a rule's boundary is solved for at its first look, which takes up to half a second."""
    bench = Bench(models=2, questions=plan.drawn or 1, weights=plan.bench.weights)
    plain = replace(plan, bench=bench, objective=Ranking(), policy=UnresolvedPairs(), budget=Budget(), first=None)
    toy = Controller(plain)
    while not toy.looks:
        toy.tell([Outcome(ask.model, ask.question, ask.trial, ask.trial % 2) for ask in toy.ask(plan.trials.max)])
