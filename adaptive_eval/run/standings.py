"""The ranking as a display shows it: each model, and one comparison beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adaptive_eval.core.types import Verdict


@dataclass(frozen=True, slots=True)
class Standing:
    """One model in the ranking."""

    name: str
    tier: int
    score: float
    lo: float
    hi: float
    trials: int
    z: float | None
    """Of the comparison that is shown beside this model, if any: with the model placed next, with a fixed value, or
    with `against`; None where the objective is about precision alone."""
    boundary: float | None
    verdict: Verdict | None
    against: str | None
    set_aside: str | None


class Placed(NamedTuple):
    """A model in its place; the score and its interval are nan where there are none."""

    name: str
    tier: int
    score: float
    lo: float
    hi: float
    trials: int
    set_aside: str | None


class Compared(NamedTuple):
    """A comparison; z and boundary are None where the objective is about precision alone."""

    better: str
    worse: str | None
    verdict: Verdict
    z: float | None
    boundary: float | None


def standings(models: Sequence[Placed], pairs: Sequence[Compared]) -> tuple[Standing, ...]:
    """The ranking, for models from best to worst."""
    order = [model.name for model in models]
    beside = _beside(order, pairs)
    return tuple(
        _standing(model, beside.get(model.name), following)
        for model, following in zip(models, [*order[1:], None], strict=True)
    )


def _standing(model: Placed, pair: Compared | None, following: str | None) -> Standing:
    members = () if pair is None else (pair.better, pair.worse)
    return Standing(
        name=model.name,
        tier=model.tier,
        score=model.score,
        lo=model.lo,
        hi=model.hi,
        trials=model.trials,
        z=None if pair is None else pair.z,
        boundary=None if pair is None else pair.boundary,
        verdict=None if pair is None else pair.verdict,
        against=next((other for other in members if other not in (model.name, following, None)), None),
        set_aside=model.set_aside,
    )


def _beside(order: Sequence[str], pairs: Sequence[Compared]) -> dict[str, Compared]:
    """The comparison to show beside each model: with the next or with a fixed value, else one that is shown nowhere
    yet, an open one before others."""
    following = dict(zip(order, order[1:], strict=False))
    beside = {pair.better: pair for pair in pairs if pair.worse in (None, following.get(pair.better))}
    left = [pair for pair in pairs if beside.get(pair.better) is not pair]
    for pair in sorted(left, key=lambda pair: pair.verdict is not Verdict.OPEN):
        free = [model for model in (pair.better, pair.worse) if model is not None and model not in beside]
        if free:
            beside[free[0]] = pair
    return beside
