"""Contract of a rule, on evidence between nothing known and more than everything."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.special import ndtri

from adaptive_eval.core.evidence import Evidence, pair_indices
from adaptive_eval.core.rules import Correctable, ErrorLeft, Extendable, Rule, has_error_left
from adaptive_eval.testing.runs import check_elsewhere, check_runs, fail_unless, no_error
from scorio.moments import FloatArray

CASES, OPTION_CASES = 60, 5
PATHS, LOOKS = 4_000, 40
"""Pairs of exact ties, and looks at each, on which p-values are tried."""
CORRECTABLE = ("confidence", "p_value", "at_level")
RAISED_PATHS, RAISED_LOOKS, RAISED = 150, 6, (1, 16, 256, 4096)
"""Pairs of exact ties, and looks under each of these horizons, on which a horizon that is raised is tried."""
RAISED_LEVEL = 0.25
"""The one-sided error there: so large that a few paths show when it is spent more than once."""
LEAVES_ERROR = ("remaining_error", "exhausted", "tied")
CERTAIN_Z, CERTAIN_SIGMA = 50.0, 0.01
"""Half of the scale apart, with all the trials allowed: whoever does not call this calls nothing."""
NOTHING_Z, NOTHING_SIGMA = 0.99, 0.5
"""z of every third exact tie, with a standard error of half of the scale: whoever calls this calls anything."""


def check_rule(rule: Rule) -> None:
    """Raise AssertionError unless the rule keeps to its contract; its error is tried by p-values, if it has any.

    Args:
        rule: When a pair is called.

    Raises:
        AssertionError: It does not; the message says what is broken, and for which evidence.

    Example:
        >>> from adaptive_eval.core import Optimal
        >>> check_rule(Optimal(confidence=0.95))
    """
    name = type(rule).__name__
    has = [part for part in CORRECTABLE if hasattr(rule, part)]
    fail_unless(
        len(has) == len(CORRECTABLE) or not (hasattr(rule, "p_value") or hasattr(rule, "at_level")),
        f"{name} has {' and '.join(has)}, but a rule that can be corrected needs {', '.join(CORRECTABLE)}",
    )
    for on in evidence_cases():
        check_boundary(rule, on)
        if isinstance(rule, Correctable):
            check_p_values(rule, on)
    _check_extremes(rule, name)
    if isinstance(rule, Correctable):
        _check_options(rule, name)
        _check_ties(rule, name)
    if isinstance(rule, Extendable):
        _check_raised(cast(Extendable, rule.at_level(RAISED_LEVEL)) if isinstance(rule, Correctable) else rule, name)
    check_runs(name, rule=rule)
    check_elsewhere(_boundaries, (rule,), name)


def _boundaries(rule: Rule) -> str:
    return " ".join(f"{one:.6g}" for on in evidence_cases(OPTION_CASES) for one in rule.boundary(on))


def check_boundary(rule: Rule, on: Evidence) -> None:
    """The boundary on one piece of evidence."""
    name = type(rule).__name__
    boundary = _boundary(rule, on, name)
    fail_unless(not np.isnan(boundary).any(), f"{name}: the boundary is nan where {_first(on, np.isnan(boundary))}")
    fail_unless(bool(np.all(boundary >= 0.0)), f"{name}: the boundary is negative where {_first(on, boundary < 0.0)}")
    unknown = _called(boundary, on) & ~np.isfinite(on.sigma)
    fail_unless(not unknown.any(), f"{name} calls a pair of which nothing is known: {_first(on, unknown)}")
    again = _boundary(rule, on, name)
    fail_unless(np.array_equal(again, boundary), f"{name} gives another boundary when it is asked again: it remembers")
    for at in range(min(len(boundary), 3)):
        alone = _boundary(rule, _part(on, np.array([at])), name)
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
    """The p-values of one piece of evidence, beside the boundary."""
    name, alpha, boundary = type(rule).__name__, 1.0 - rule.confidence, _boundary(rule, on, type(rule).__name__)
    for sign in (1, -1):
        p = _p_value(rule, on, sign, name)
        fail_unless(p.shape == on.z.shape, f"{name}: p_value has shape {p.shape}, but there are {on.z.shape} pairs")
        wrong = ~((p > 0.0) & (p <= 1.0))
        fail_unless(not wrong.any(), f"{name}: a p-value is not in (0, 1] where {_first(on, wrong)}")
        against = (sign * on.z <= 0.0) & (p != 1.0)
        fail_unless(not against.any(), f"{name}: the p-value must be 1 where the other is ahead: {_first(on, against)}")
        low = (p <= alpha) & ~(sign * on.z >= boundary - 1e-6)
        fail_unless(not low.any(), f"{name}: p <= 1 - confidence below the boundary, where {_first(on, low)}")
        high = (sign * on.z >= 1.1 * boundary) & (p > alpha)
        fail_unless(not high.any(), f"{name}: p > 1 - confidence far beyond the boundary, where {_first(on, high)}")
        more = _p_value(rule, replace(on, z=1.5 * on.z), sign, name) > np.maximum(p, sign * on.z < 0.0)
        fail_unless(not more.any(), f"{name}: the p-value rises with the difference where {_first(on, more)}")
    finite = np.isfinite(boundary)
    with no_error(f"{name}: at_level", lambda: f"for alpha {alpha:g} or a tenth of it"):
        own, stricter = rule.at_level(alpha), rule.at_level(alpha / 10.0)
    same = np.allclose(own.boundary(on), boundary, rtol=1e-9)
    fail_unless(same, f"{name}: at_level(1 - confidence) has another boundary than the rule itself")
    level = abs(stricter.confidence - (1.0 - alpha / 10.0)) < 1e-12
    fail_unless(level, f"{name}: at_level(alpha) must have confidence 1 - alpha, but has {stricter.confidence}")
    lower = finite & (stricter.boundary(on) <= boundary)
    fail_unless(not lower.any(), f"{name}: a smaller error must take a higher boundary: {_first(on, lower)}")
    same = np.allclose(stricter.p_value(on, 1), rule.p_value(on, 1), rtol=1e-9)
    fail_unless(same, f"{name}: at_level changes the p-values, which must not depend on the level")


def _check_options(rule: Correctable, name: str) -> None:
    """Whatever else the rule can be told is kept at another level: a rule with its defaults does not show it."""
    if not is_dataclass(rule):
        return
    for option in fields(rule):
        value = getattr(rule, option.name)
        if not option.init or option.name == "confidence" or not isinstance(value, float):
            continue
        try:
            told = cast(Correctable, replace(cast(Any, rule), **{option.name: 0.9 * value}))
        except ValueError:
            continue  # it may be told nothing like that
        level = told.at_level(1.0 - told.confidence)
        for on in evidence_cases(OPTION_CASES):
            kept = np.allclose(level.boundary(on), told.boundary(on), rtol=1e-9)
            fail_unless(kept, f"{name}: at_level forgets {option.name}: with {0.9 * value:g} the boundary is another")


def evidence_cases(cases: int = CASES) -> Iterator[Evidence]:
    """Evidence of all kinds, the same every time."""
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        models, reference = int(rng.integers(1, 6)), bool(rng.random() < 0.5)
        first, second = pair_indices(models, reference)
        sigma = np.where(rng.random(models) < 0.2, np.inf, 10.0 ** rng.uniform(-4.0, -0.3, models))
        z = np.where(rng.random(len(first)) < 0.2, 0.0, rng.uniform(-12.0, 12.0, len(first)))
        information = np.where(
            rng.random(len(first)) < 0.2, rng.choice([0.0, 0.05, 1.0]), rng.uniform(0, 1.5, len(first))
        )
        yield _evidence(models, reference, z, information, sigma)


def _evidence(models: int, reference: bool, z: FloatArray, information: FloatArray, own: FloatArray) -> Evidence:
    first, second = pair_indices(models, reference)
    both = np.append(own, 0.0)
    sigma = np.hypot(both[first], both[second])
    known = np.isfinite(sigma)
    return Evidence(
        models=models,
        against_reference=reference,
        first=first,
        second=second,
        difference=np.where(known, z * np.where(known, sigma, 0.0), 0.0),
        sigma=sigma,
        z=np.where(known, z, 0.0),
        information=np.where(known, information, 0.0),
    )


def _check_extremes(rule: Rule, name: str) -> None:
    """Check that a certain difference is called, and one that ties show by chance is not."""
    one = np.ones(1)
    clear = _evidence(1, True, CERTAIN_Z * one, one, CERTAIN_SIGMA * one)
    called = _called(_boundary(rule, clear, name), clear).all()
    fail_unless(bool(called), f"{name} calls nothing, not even with all the trials allowed where {_first(clear, 0)}")
    confidence = getattr(rule, "confidence", 1.0)  # one that promises little may call what shows little
    z = min(NOTHING_Z, float(ndtri(confidence)) / 2.0)
    for information in (0.0, 0.01, 0.1, 0.5, 1.0):
        unclear = _evidence(1, True, z * one, information * one, NOTHING_SIGMA * one)
        called = _called(_boundary(rule, unclear, name), unclear).any()
        fail_unless(
            not called,
            f"{name} calls a pair that differs by next to nothing, as exact ties do by chance: {_first(unclear, 0)}",
        )


def _check_ties(rule: Correctable, name: str) -> None:
    """Check that of exact ties, whose z is W(t)/sqrt(t), a share of at most alpha ever has a p-value below alpha."""
    rng, least = np.random.default_rng(0), np.ones(PATHS)
    times, walk, before = np.linspace(0.025, 1.0, LOOKS), np.zeros(PATHS), 0.0
    for t in times:
        walk += rng.standard_normal(PATHS) * np.sqrt(t - before)
        before = t
        on = _evidence(PATHS, True, walk / np.sqrt(t), np.full(PATHS, t), np.full(PATHS, 0.03))
        least = np.minimum(least, rule.p_value(on, 1))
    for alpha in (0.01, 0.05, 0.2):
        share, error = float(np.mean(least <= alpha)), 4.0 * np.sqrt(alpha * (1.0 - alpha) / PATHS)
        fail_unless(
            share <= alpha + error,
            f"{name}: the p-values do not survive repeated looks: of exact ties, {share:.1%} have p <= {alpha:g} at "
            f"one of {LOOKS} looks, and {alpha:.0%} may",
        )


def _check_raised(rule: Extendable, name: str) -> None:
    """Exact ties whose horizon is raised again and again, each time after the looks to its end."""
    rng, walk, before = np.random.default_rng(0), np.zeros(RAISED_PATHS), 0.0
    now, called = cast(Rule, rule), np.zeros(RAISED_PATHS, dtype=bool)
    for horizon, following in zip(RAISED, (*RAISED[1:], None), strict=True):
        looks: list[Evidence] = []
        for time in np.linspace(before, horizon, RAISED_LOOKS + 1)[1:]:
            walk += rng.standard_normal(RAISED_PATHS) * np.sqrt(time - before)
            before, known = time, np.full(RAISED_PATHS, time / horizon)
            looks.append(_evidence(RAISED_PATHS, True, walk / np.sqrt(time), known, np.full(RAISED_PATHS, 0.03)))
            called |= _called(_boundary(now, looks[-1], name), looks[-1])
        if following is not None:
            then = replace(looks[-1], information=looks[-1].information * horizon / following)
            if now is rule:
                _check_extended(rule, looks, then, name)
            with no_error(f"{name}: extended", lambda: f"after {RAISED_LOOKS} looks at exact ties"):
                now = cast(Extendable, now).extended(looks, then, 0.0)
    if isinstance(rule, Correctable):
        promised, share = 2.0 * (1.0 - rule.confidence), float(called.mean())
        error = 3.0 * np.sqrt(promised * (1.0 - promised) / RAISED_PATHS)
        fail_unless(
            share <= promised + error,
            f"{name}: extended lets the error be spent again: of exact ties whose horizon is raised "
            f"{len(RAISED) - 1} times, {share:.0%} are called, and {promised:.0%} may",
        )


def _check_extended(rule: Extendable, looks: Sequence[Evidence], then: Evidence, name: str) -> None:
    """Check the rule under the next horizon on a few pairs."""
    few = np.arange(8)
    some, now = [_part(look, few) for look in looks], _part(then, few)
    with no_error(f"{name}: extended", lambda: f"after {len(some)} looks, the last {_first(now, 0)}"):
        found, again = (rule.extended(some, now, 0.05) for _ in range(2))
    fail_unless(isinstance(found, Extendable), f"{name}: what extended gives cannot be extended once more")
    has = [part for part in LEAVES_ERROR if hasattr(found, part)]
    fail_unless(
        len(has) in (0, len(LEAVES_ERROR)),
        f"{name}: what extended gives has {' and '.join(has)}, but to leave error it needs {', '.join(LEAVES_ERROR)}",
    )
    corrects = isinstance(found, Correctable) or not isinstance(rule, Correctable)
    fail_unless(corrects, f"{name}: what extended gives lacks p-values: it cannot be corrected for many comparisons")
    boundary = _boundary(found, now, name)
    sound = not np.isnan(boundary).any() and bool(np.all(boundary >= 0.0))
    fail_unless(sound, f"{name}: the boundary that extended gives is nan or negative")
    same = np.array_equal(_boundary(again, now, name), boundary)
    fail_unless(same, f"{name}: extended gives another rule when it is asked again: it remembers")
    if has_error_left(found):
        _check_left(found, now, boundary, name)


def _check_left(rule: ErrorLeft, now: Evidence, boundary: FloatArray, name: str) -> None:
    left, spent = rule.remaining_error(now), rule.exhausted(now)
    fail_unless(bool(np.all((left >= 0.0) & (left <= 1.0))), f"{name}: left is a chance, from 0 to 1")
    called = spent & np.isfinite(boundary)
    fail_unless(not called.any(), f"{name}: what is spent may not be called any more: {_first(now, called)}")
    kept = spent & (left > 0.0)
    fail_unless(not kept.any(), f"{name}: what is spent has nothing left: {_first(now, kept)}")
    tied = np.asarray(rule.tied(now, 0.05))
    shaped = tied.shape == now.z.shape and tied.dtype == np.bool_
    fail_unless(shaped, f"{name}: tied is true or false for each of the {now.z.shape} pairs")


def _boundary(rule: Rule, on: Evidence, name: str) -> FloatArray:
    """The boundary, from arrays that cannot be written to."""
    arrays = {field.name: getattr(on, field.name) for field in fields(on)}
    arrays = {key: value.copy() for key, value in arrays.items() if isinstance(value, np.ndarray)}
    for array in arrays.values():
        array.flags.writeable = False
    with no_error(name, lambda: _raising(rule.boundary, on)):
        boundary = rule.boundary(replace(on, **arrays))
    shape = getattr(boundary, "shape", None)
    fail_unless(
        shape == on.z.shape, f"{name}: boundary has shape {shape}, but there are {on.z.shape} pairs: one for each"
    )
    fail_unless(
        bool(np.issubdtype(boundary.dtype, np.floating)),
        f"{name}: boundary must be the number that |z| has to reach, as floats, but is of {boundary.dtype}",
    )
    return boundary


def _p_value(rule: Correctable, on: Evidence, sign: int, name: str) -> FloatArray:
    with no_error(f"{name}: p_value", lambda: f"for sign {sign}, {_raising(lambda one: rule.p_value(one, sign), on)}"):
        return np.asarray(rule.p_value(on, sign))


def _raising(ask: Callable[[Evidence], object], on: Evidence) -> str:
    """The pair for which an error is raised, if one pair alone shows it."""
    for at in range(len(on.z)):
        try:
            ask(_part(on, np.array([at])))
        except Exception:  # the one that is looked for
            return f"where {_first(on, at)}"
    return f"for {len(on.z)} pairs at once" if len(on.z) else "for evidence on no pair"


def _part(on: Evidence, at: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Evidence:
    arrays = {field.name: getattr(on, field.name) for field in fields(on)}
    chosen: dict[str, Any] = {key: value[at] for key, value in arrays.items() if isinstance(value, np.ndarray)}
    return replace(on, **chosen)


def _called(boundary: FloatArray, on: Evidence) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.asarray((np.abs(on.z) >= boundary) & (on.z != 0.0))


def _first(on: Evidence, where: object) -> str:
    """The first such pair, for the message."""
    if isinstance(where, np.ndarray) and not where.any():
        return ""  # nothing is to be told
    at = int(np.flatnonzero(where)[0]) if isinstance(where, np.ndarray) else cast(int, where)
    return f"z {on.z[at]:.4g}, sigma {on.sigma[at]:.4g}, information {on.information[at]:.4g}"
