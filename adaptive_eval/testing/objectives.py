"""Contract of an objective, for any order of the models."""

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.objectives import Objective
from adaptive_eval.testing.rules import check_rule
from adaptive_eval.testing.runs import check_runs, fail_unless, no_error

ORDERS = 40


def check_objective(objective: Objective, models: int = 4) -> None:
    """Raise AssertionError if the objective breaks its contract, in runs of this many models."""
    name, reference = type(objective).__name__, objective.reference
    finite = reference is None or math.isfinite(reference)
    fail_unless(finite, f"{name}: reference must be a finite number, or None, but got {reference!r}")
    for seed in range(ORDERS):
        _check_order(objective, np.random.default_rng(seed).permutation(models), name)
    fail_unless(
        objective.compares or objective.rule is not None,
        f"{name} does not compare, so that no configured rule can judge it: it must bring a rule of its own",
    )
    if objective.rule is not None:
        check_rule(objective.rule)
    check_runs(name, objective=objective, models=(models,))


def _check_order(objective: Objective, order: NDArray[np.intp], name: str) -> None:
    models, before = len(order), order.copy()
    with no_error(name, lambda: f"for the order {before.tolist()}"):
        pairs, repeated = np.asarray(objective.comparisons(order)), np.asarray(objective.comparisons(before.copy()))
        family = objective.family(models)
    fail_unless(np.array_equal(order, before), f"{name} changes the order that it is shown")
    _check_pairs(pairs, "comparisons", name)
    fail_unless(len(pairs) > 0, f"{name} compares nothing in the order {order.tolist()}")
    self_pairs = pairs[pairs[:, 0] == pairs[:, 1]].tolist()
    fail_unless(not self_pairs, f"{name} compares a model with itself: {self_pairs[:1]}")
    has_reference = objective.reference is not None
    last = models if has_reference else models - 1
    outside = pairs[(pairs.min(axis=1) < 0) | (pairs[:, 0] >= models) | (pairs[:, 1] > last)].tolist()
    fail_unless(not outside, f"{name} compares what is none of the models 0 to {models - 1}: {outside[:1]}")
    others = pairs[pairs[:, 1] != models].tolist() if has_reference else []
    fail_unless(not others, f"{name} has a reference, number {models}: the second of every pair, but got {others[:1]}")
    fail_unless(np.array_equal(repeated, pairs), f"{name} names other comparisons when it is asked again")
    if isinstance(family, int | np.integer):
        too_small = f"{name}: family is {family}, but {len(pairs)} comparisons could each turn out to be wrong"
        fail_unless(family >= 1 and (objective.rule is not None or len(pairs) <= family), too_small)
        return
    _check_pairs(np.asarray(family), "family", name)
    members = {frozenset(pair) for pair in np.asarray(family).tolist()}
    missing = [pair for pair in pairs.tolist() if frozenset(pair) not in members]
    fail_unless(not missing, f"{name} compares {missing[:1]}, which is not in its family, so no error is left for it")


def _check_pairs(pairs: NDArray[np.integer], what: str, name: str) -> None:
    shaped = pairs.ndim == 2 and pairs.shape[1] == 2 and np.issubdtype(pairs.dtype, np.integer)
    fail_unless(shaped, f"{name}: {what} must be (n, 2) positions, but got {pairs.shape} of {pairs.dtype}")
    has_duplicates = len({frozenset(pair) for pair in pairs.tolist()}) < len(pairs)
    fail_unless(not has_duplicates, f"{name}: {what} has a pair twice: {pairs.tolist()}")
