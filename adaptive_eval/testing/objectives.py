"""Contract of an objective, in whatever order the models stand."""

import math

import numpy as np

from adaptive_eval.core.objectives import Objective
from adaptive_eval.testing.rules import check_rule
from adaptive_eval.testing.runs import check_elsewhere, check_runs, fail_unless, no_error

ORDERS = 40


def check_objective(objective: Objective, models: int = 4) -> None:
    """Raise AssertionError unless the objective keeps to its contract.

    Args:
        objective: What a run is to find out.
        models: Of the runs that it is tried in.

    Raises:
        AssertionError: It does not; the message says what is broken.

    Example:
        >>> from adaptive_eval.core import Ranking
        >>> check_objective(Ranking())
    """
    name, reference = type(objective).__name__, objective.reference
    known = reference is None or math.isfinite(reference)
    fail_unless(known, f"{name}: reference must be a finite number, or None, but got {reference!r}")
    _check_family(objective, models, name)
    for seed in range(ORDERS):
        _check_order(objective, np.random.default_rng(seed).permutation(models), name)
    fail_unless(
        objective.compares or objective.rule is not None,
        f"{name} does not compare, so that no configured rule can judge it: it must bring a rule of its own",
    )
    if objective.rule is not None:
        check_rule(objective.rule)
    check_runs(name, objective=objective, models=(models,))
    check_elsewhere(_comparisons, (objective, models), name)


def _comparisons(objective: Objective, models: int) -> str:
    """Comparisons of the models in their order and the other way round, and the family."""
    orders = np.arange(models), np.arange(models)[::-1].copy()
    named = [np.asarray(objective.comparisons(order)).tolist() for order in orders]
    return f"{named} {np.asarray(objective.family(models)).tolist()}"


def _check_order(objective: Objective, order: np.ndarray[tuple[int, ...], np.dtype[np.intp]], name: str) -> None:
    models, kept = len(order), order.copy()
    with no_error(name, lambda: f"for the order {kept.tolist()}"):
        pairs = np.asarray(objective.comparisons(order))
    fail_unless(np.array_equal(order, kept), f"{name} changes the order that it is shown")
    fail_unless(pairs.ndim == 2 and pairs.shape[1] == 2, f"{name}: comparisons must be (n, 2), but got {pairs.shape}")
    fail_unless(np.issubdtype(pairs.dtype, np.integer), f"{name}: comparisons are positions, but got {pairs.dtype}")
    fail_unless(len(pairs) > 0, f"{name} compares nothing in the order {order.tolist()}")
    same = pairs[pairs[:, 0] == pairs[:, 1]].tolist()
    fail_unless(not same, f"{name} compares a model with itself: {same[:1]}")
    last = models if objective.reference is not None else models - 1
    outside = pairs[(pairs.min(axis=1) < 0) | (pairs[:, 0] >= models) | (pairs[:, 1] > last)].tolist()
    fail_unless(not outside, f"{name} compares what is none of the models 0 to {models - 1}: {outside[:1]}")
    if objective.reference is not None:
        others = pairs[pairs[:, 1] != models].tolist()
        fail_unless(
            not others, f"{name} has a reference, number {models}: the second of every pair, but got {others[:1]}"
        )
    twice = len({frozenset(pair) for pair in pairs.tolist()}) < len(pairs)
    fail_unless(not twice, f"{name} names a comparison twice in the order {order.tolist()}")
    again = np.array_equal(objective.comparisons(order), pairs)
    fail_unless(again, f"{name} names other comparisons when it is asked again: it remembers, or it draws")
    family = objective.family(models)
    if isinstance(family, int | np.integer):
        few = objective.rule is None and len(pairs) > family
        fail_unless(
            not few, f"{name}: family is {family}, but {len(pairs)} comparisons could each turn out to be wrong"
        )
    else:
        members = {frozenset(pair) for pair in np.asarray(family).tolist()}
        missing = [pair for pair in pairs.tolist() if frozenset(pair) not in members]
        fail_unless(
            not missing, f"{name} compares {missing[:1]}, which is not in its family, so no error is left for it"
        )


def _check_family(objective: Objective, models: int, name: str) -> None:
    with no_error(name, lambda: f"for {models} models"):
        family = objective.family(models)
    if isinstance(family, int | np.integer):
        fail_unless(family >= 1, f"{name}: family must be at least 1, but got {family}")
        return
    pairs = np.asarray(family)
    shaped = pairs.ndim == 2 and pairs.shape[1] == 2
    fail_unless(shaped, f"{name}: family must be a number, or pairs (n, 2), but got {pairs.shape}")
    twice = len({frozenset(pair) for pair in pairs.tolist()}) < len(pairs)
    fail_unless(not twice, f"{name}: family names a pair twice")
