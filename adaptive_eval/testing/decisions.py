"""Contracts of what decides: a rule, on evidence from no information to more than the horizon; an objective, for any
order of the models; a policy, for any view.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from adaptive_eval.core.evidence import Evidence, pair_indices
from adaptive_eval.core.objectives import Objective
from adaptive_eval.core.policies import Policy, View, asks_only_open
from adaptive_eval.core.rules import Correctable, Rule
from adaptive_eval.testing.runs import check_runs, fail_unless, no_error, read_only, with_arrays
from scorio.moments import FloatArray, IntArray, relative_weights

CASES = 60
"""Cases of evidence, and of views."""
ORDERS = 40
PATHS, LOOKS = 4_000, 40
"""Number of exact ties, and of looks at each, for testing p-values."""
CORRECTABLE = ("confidence", "p_value", "at_level")
CERTAIN_Z, CERTAIN_SIGMA = 50.0, 0.01
"""A difference of half the scale at the horizon, which any useful rule calls."""
UNCLEAR_Z, UNCLEAR_SIGMA = 0.99, 0.5
"""z of every third exact tie, with a standard error of half the scale, which no valid rule calls."""


def check_rule(rule: Rule) -> None:
    """Raise AssertionError if the rule breaks its contract; its p-values, if any, are tested on exact ties."""
    name = type(rule).__name__
    members = [part for part in CORRECTABLE if hasattr(rule, part)]
    fail_unless(
        len(members) == len(CORRECTABLE) or not hasattr(rule, "p_value"),
        f"{name} has {' and '.join(members)}, but a rule that can be corrected needs {', '.join(CORRECTABLE)}",
    )
    for on in evidence_cases():
        check_boundary(rule, on)
        if isinstance(rule, Correctable):
            check_p_values(rule, on)
    _check_extremes(rule, name)
    if isinstance(rule, Correctable):
        _check_ties(rule, name)
    check_runs(name, rule=rule)


def check_boundary(rule: Rule, on: Evidence) -> None:
    """Check the boundary for some evidence."""
    name = type(rule).__name__
    boundary = _boundary(rule, on, name)
    fail_unless(not np.isnan(boundary).any(), f"{name}: the boundary is nan where {_first(on, np.isnan(boundary))}")
    fail_unless(bool(np.all(boundary >= 0.0)), f"{name}: the boundary is negative where {_first(on, boundary < 0.0)}")
    unknown = _called(boundary, on) & ~np.isfinite(on.sigma)
    fail_unless(not unknown.any(), f"{name} calls a pair of which nothing is known: {_first(on, unknown)}")
    again = _boundary(rule, on, name)
    fail_unless(np.array_equal(again, boundary), f"{name} gives another boundary when it is asked again: it remembers")
    for at in range(min(len(boundary), 3)):
        alone = _boundary(rule, with_arrays(on, itemgetter([at])), name)
        same = np.allclose(alone, boundary[at], rtol=1e-9, atol=0.0, equal_nan=True)
        fail_unless(same, f"{name}: the boundary of a pair depends on which other pairs there are: {_first(on, at)}")
    turned = replace(on, difference=-on.difference, z=-on.z)
    other = _boundary(rule, turned, name) != boundary
    fail_unless(not other.any(), f"{name} favours the first or the second of a pair: {_first(on, other)}")
    larger = replace(on, difference=1.5 * on.difference, z=1.5 * on.z)
    edge = np.abs(np.abs(on.z) - boundary) < 1e-9
    lost = _called(boundary, on) & ~edge & ~_called(_boundary(rule, larger, name), larger)
    fail_unless(not lost.any(), f"{name} no longer calls a pair whose difference is larger: {_first(on, lost)}")


def check_p_values(rule: Correctable, on: Evidence) -> None:
    """Check the p-values for some evidence against the boundary."""
    name, alpha = type(rule).__name__, 1.0 - rule.confidence
    boundary = _boundary(rule, on, name)
    for sign in (1, -1):
        ahead = sign * on.z
        with no_error(f"{name}: p_value", lambda sign=sign: f"for sign {sign} of {on!r:.300}"):  # type: ignore[misc]
            p = np.asarray(rule.p_value(on, sign))
            more = np.asarray(rule.p_value(replace(on, z=1.5 * on.z), sign))
        fail_unless(p.shape == on.z.shape, f"{name}: p_value has shape {p.shape}, but there are {on.z.shape} pairs")
        for wrong, problem in (
            (~((p > 0.0) & (p <= 1.0)), "a p-value is not in (0, 1]"),
            ((ahead <= 0.0) & (p != 1.0), "the p-value must be 1 if the other is ahead"),
            ((p <= alpha) & ~(ahead >= boundary - 1e-6), "p <= 1 - confidence below the boundary"),
            ((ahead >= 1.1 * boundary) & (p > alpha), "p > 1 - confidence far beyond the boundary"),
            (more > np.maximum(p, ahead < 0.0), "the p-value rises with the difference"),
        ):
            fail_unless(not wrong.any(), f"{name}: {problem} where {_first(on, wrong)}")
    with no_error(f"{name}: at_level", lambda: f"for alpha {alpha:g} or a tenth of it"):
        same_level, stricter = rule.at_level(alpha), rule.at_level(alpha / 10.0)
    same = np.allclose(same_level.boundary(on), boundary, rtol=1e-9)
    fail_unless(same, f"{name}: at_level(1 - confidence) has another boundary than the rule itself")
    level = abs(stricter.confidence - (1.0 - alpha / 10.0)) < 1e-12
    fail_unless(level, f"{name}: at_level(alpha) must have confidence 1 - alpha, but has {stricter.confidence}")
    lower = np.isfinite(boundary) & (stricter.boundary(on) <= boundary)
    fail_unless(not lower.any(), f"{name}: a smaller error must take a higher boundary: {_first(on, lower)}")
    same = np.allclose(stricter.p_value(on, 1), rule.p_value(on, 1), rtol=1e-9)
    fail_unless(same, f"{name}: at_level changes the p-values, which must not depend on the level")


def evidence_cases(cases: int = CASES) -> Iterator[Evidence]:
    """Reproducible evidence of all kinds."""
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        models, reference = int(rng.integers(1, 6)), bool(rng.random() < 0.5)
        pairs = len(pair_indices(models, reference)[0])
        sigma = np.where(rng.random(models) < 0.2, np.inf, 10.0 ** rng.uniform(-4.0, -0.3, models))
        z = np.where(rng.random(pairs) < 0.2, 0.0, rng.uniform(-12.0, 12.0, pairs))
        information = np.where(rng.random(pairs) < 0.2, rng.choice([0.0, 0.05, 1.0]), rng.uniform(0, 1.5, pairs))
        yield made_evidence(models, reference, z, information, sigma)


def made_evidence(models: int, reference: bool, z: FloatArray, information: FloatArray, sigmas: FloatArray) -> Evidence:
    """Each pair of models, or each model against a fixed value, with these z and information."""
    first, second = pair_indices(models, reference)
    both = np.append(sigmas, 0.0)
    sigma = np.hypot(both[first], both[second])
    is_finite = np.isfinite(sigma)
    return Evidence(
        models=models,
        against_reference=reference,
        first=first,
        second=second,
        difference=np.where(is_finite, z * np.where(is_finite, sigma, 0.0), 0.0),
        sigma=sigma,
        z=np.where(is_finite, z, 0.0),
        information=np.where(is_finite, information, 0.0),
    )


def _check_extremes(rule: Rule, name: str) -> None:
    """Check that a certain difference is called, and that a difference typical of ties is not."""
    ones = np.ones(1)
    clear = made_evidence(1, True, CERTAIN_Z * ones, ones, CERTAIN_SIGMA * ones)
    called = _called(_boundary(rule, clear, name), clear).all()
    fail_unless(bool(called), f"{name} calls nothing, not even with all the trials allowed where {_first(clear, 0)}")
    confidence = getattr(rule, "confidence", 1.0)  # one that promises little may call what shows little
    z = min(UNCLEAR_Z, float(ndtri(confidence)) / 2.0)
    for information in (0.0, 0.01, 0.1, 0.5, 1.0):
        unclear = made_evidence(1, True, z * ones, information * ones, UNCLEAR_SIGMA * ones)
        called = _called(_boundary(rule, unclear, name), unclear).any()
        problem = "calls a pair that differs by next to nothing, as exact ties do by chance"
        fail_unless(not called, f"{name} {problem}: {_first(unclear, 0)}")


def _check_ties(rule: Correctable, name: str) -> None:
    """Check that at most a share alpha of exact ties, whose z is W(t)/sqrt(t), ever has a p-value below alpha."""
    rng, smallest = np.random.default_rng(0), np.ones(PATHS)
    times, walk, before = np.linspace(0.025, 1.0, LOOKS), np.zeros(PATHS), 0.0
    for t in times:
        walk += rng.standard_normal(PATHS) * np.sqrt(t - before)
        before = t
        on = made_evidence(PATHS, True, walk / np.sqrt(t), np.full(PATHS, t), np.full(PATHS, 0.03))
        smallest = np.minimum(smallest, rule.p_value(on, 1))
    for alpha in (0.01, 0.05, 0.2):
        share, error = float(np.mean(smallest <= alpha)), 4.0 * np.sqrt(alpha * (1.0 - alpha) / PATHS)
        fail_unless(
            share <= alpha + error,
            f"{name}: the p-values do not survive repeated looks: of exact ties, {share:.1%} have p <= {alpha:g} at "
            f"one of {LOOKS} looks, and {alpha:.0%} may",
        )


def _boundary(rule: Rule, on: Evidence, name: str) -> FloatArray:
    """The boundary, from arrays that cannot be written to."""
    with no_error(name, lambda: f"for {on!r:.300}"):
        boundary = rule.boundary(with_arrays(on, read_only))
    shape = getattr(boundary, "shape", None)
    one_each = f"boundary has shape {shape}, but there are {on.z.shape} pairs: one for each"
    fail_unless(shape == on.z.shape, f"{name}: {one_each}")
    floats = bool(np.issubdtype(boundary.dtype, np.floating))
    fail_unless(floats, f"{name}: boundary must be the floats that |z| has to reach, but is of {boundary.dtype}")
    return boundary


def _called(boundary: FloatArray, on: Evidence) -> NDArray[np.bool_]:
    return np.asarray((np.abs(on.z) >= boundary) & (on.z != 0.0))


def _first(on: Evidence, where: int | NDArray[np.bool_]) -> str:
    """The first such pair, for the message."""
    if isinstance(where, np.ndarray) and not where.any():
        return ""  # there is no problem
    at = where if isinstance(where, int) else int(np.flatnonzero(where)[0])
    return f"z {on.z[at]:.4g}, sigma {on.sigma[at]:.4g}, information {on.information[at]:.4g}"


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


def check_policy(policy: Policy) -> None:
    """Raise AssertionError if the policy, which allocates the trials of a round, breaks its contract."""
    for view in view_cases():
        check_allocation(policy, view)
    check_runs(type(policy).__name__, policy=policy)


def check_allocation(policy: Policy, view: View) -> None:
    """Check the allocation for one view."""
    name = type(policy).__name__
    given = _allocated(policy, view, name)
    shape = view.issued.shape
    must = f"{name}: allocate gives shape {given.shape}, but must give (models, questions) {shape}"
    fail_unless(given.shape == shape, must)
    fail_unless(np.issubdtype(given.dtype, np.integer), f"{name}: trials must be whole numbers, but got {given.dtype}")
    fail_unless(bool(given.min() >= 0), f"{name}: trials must not be negative, but got {given.min()}")
    out_of_play = np.flatnonzero(given.any(axis=1) & ~view.in_play)
    fail_unless(not len(out_of_play), f"{name} asks for trials of a model that is not in play: {out_of_play.tolist()}")
    over = np.flatnonzero(given.sum(axis=1) > view.sizes)
    numbers = f"{given.sum(axis=1)[over].tolist()} where view.sizes allows {view.sizes[over].tolist()}"
    fail_unless(not len(over), f"{name} gives models {over.tolist()} more trials than they may have: {numbers}")
    repeated = _allocated(policy, view, name)
    fail_unless(np.array_equal(given, repeated), f"{name} gives other trials when it is asked again")
    if asks_only_open(policy):
        members = np.append(np.zeros(len(given), dtype=bool), False)
        members[view.open_pairs.ravel()] = True
        others = np.flatnonzero(given.any(axis=1) & ~members[:-1])
        declares = f"{name} declares only_open, but asks for trials of models in no open comparison"
        fail_unless(not len(others), f"{declares}: {others.tolist()}")
    nothing = replace(view, open_pairs=view.open_pairs[:0], power=view.power[:0])
    fail_unless(not _allocated(policy, nothing, name).any(), f"{name} gives trials where no comparison is open")
    able = replace(view, sizes=np.where(view.in_play, np.maximum(view.sizes, 1), 0))
    stalled = len(view.open_pairs) > 0 and not _allocated(policy, able, name).any()
    fail_unless(not stalled, f"{name} gives nothing though a comparison is open: the run would end undecided")
    rng = np.random.default_rng(len(given))
    for model in range(len(given)):
        other = view.trial_var.copy()
        other[model] = rng.exponential(1.0, other.shape[1])
        same = np.array_equal(_allocated(policy, replace(view, trial_var=other), name)[model], given[model])
        fail_unless(same, f"{name} spreads the trials of a model by its own outcomes, which biases its score")


def view_cases(cases: int = CASES) -> Iterator[View]:
    """Reproducible views of all kinds: models set aside or at their horizon, with a fixed value or without."""
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        models, questions = int(rng.integers(2, 7)), int(rng.integers(1, 9))
        in_play, order = rng.random(models) < 0.8, rng.permutation(models)
        pairs = [(a, b) for at, a in enumerate(order) for b in order[at + 1 :]]
        if rng.random() < 0.5:
            pairs = [(a, models) for a in order]
        able = np.append(in_play, True)
        open_pairs = [pair for pair in pairs if able[list(pair)].all() and rng.random() < 0.4]
        yield View(
            open_pairs=np.array(open_pairs, dtype=np.intp).reshape(-1, 2),
            power=rng.random(len(open_pairs)),
            order=order,
            in_play=in_play,
            issued=rng.integers(1, 90, (models, questions)).astype(np.int32),
            trial_var=rng.exponential(1.0, (models, questions)) ** 3 + 1e-12,
            sizes=np.where(in_play & (rng.random(models) < 0.9), rng.integers(1, 40, models), 0),
            question_weights=relative_weights(rng.uniform(0.1, 3.0, questions)) if seed % 2 else None,
        )


def _allocated(policy: Policy, view: View, name: str) -> IntArray:
    """Allocation for a copy that cannot be written to."""
    with no_error(name, lambda: f"for the view {view!r:.2000}"):
        return np.asarray(policy.allocate(with_arrays(view, read_only)))
