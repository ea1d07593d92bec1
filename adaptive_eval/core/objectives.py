"""Objectives: which comparisons matter, given today's order.

An objective also says how many one-sided mistakes it could make, which is what a familywise promise divides by: a fixed
set of pairs is corrected by Holm's procedure; where the data choose the pairs, the divisor counts every comparison that
could turn out to be the wrong one (for `best`, the true best model against each of the others).

Each objective is followed by its entry, which `registry` lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from adaptive_eval.core.entries import Entry, Option
from adaptive_eval.core.near_best import MARGIN
from adaptive_eval.core.rules import PRECISION, Precision, Rule, RuleEntry
from adaptive_eval.core.settings import Margin, require

if TYPE_CHECKING:
    from adaptive_eval.core.evidence import IndexArray


class Objective(Protocol):
    """Chooses the comparisons. Your own may inherit defaults for everything but `comparisons` and `family`."""

    def comparisons(self, order: IndexArray) -> IndexArray:
        """Pairs (n, 2) of models, either of them first; with a reference value, (model, L).

        `order` has the models from best to worst, except that those set aside come last, out of the way of the others.
        If it is `in_order`, a model that was set aside is compared with its neighbours in the order of all instead.
        """

    def family(self, models: int) -> IndexArray | int:
        """The fixed pairs (n, 2) that Holm's procedure corrects, or a divisor for Bonferroni's."""

    @property
    def reference(self) -> float | None:
        """The fixed value that models are compared with; None if they are compared with each other."""
        return None

    @property
    def rule(self) -> Rule | None:
        """The only rule that can judge this objective; None: any rule can."""
        return None

    @property
    def margin(self) -> Margin | None:
        """The margin of each model that a gate compares with its baseline or value; None without a gate."""
        return None

    @property
    def gpu_hour(self) -> float | None:
        """The price of a GPU hour, if costs of models matter; None if they do not."""
        return None

    @property
    def in_order(self) -> bool:
        """Whether each model is compared with the next one in the order."""
        return False

    @property
    def compares(self) -> bool:
        """Whether its pairs are comparisons; otherwise scores are judged without difference, z or boundary."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveEntry(Entry[Objective]):
    """An objective that can be configured; its factory may take `models`, the names of all."""

    least_models: int = 2
    compares: bool = True
    """`Objective.compares`."""
    in_order: bool = False
    """`Objective.in_order`."""
    own_rule: RuleEntry | None = None
    """The entry of the rule that the objective brings itself."""


@dataclass(frozen=True)
class Ranking(Objective):
    """Every model against its neighbour in the current order.

    Examples:
        Of three models, of which the last is the first in the order:

        >>> import numpy as np
        >>> from adaptive_eval.core import Ranking
        >>> Ranking().comparisons(np.array([2, 0, 1])).tolist()
        [[2, 0], [0, 1]]
    """

    in_order: ClassVar[bool] = True

    def comparisons(self, order: IndexArray) -> IndexArray:
        return np.stack([order[:-1], order[1:]], axis=1)

    def family(self, models: int) -> IndexArray:
        return np.stack(np.triu_indices(models, k=1), axis=1)


RANKING = ObjectiveEntry(
    name="ranking",
    make=Ranking,
    summary="neighbours in the order",
    description="Every model is compared with its neighbour in the order.",
    in_order=True,
)


@dataclass(frozen=True)
class Place(Objective):
    """The place of each new model: against its neighbours in the order, recorded or not."""

    in_order: ClassVar[bool] = True

    recorded: frozenset[int]

    def __post_init__(self) -> None:
        require(len(self.recorded) > 0, "place needs recorded models, among which others are placed", self.recorded)

    def comparisons(self, order: IndexArray) -> IndexArray:
        return self._drop_recorded_pairs(Ranking().comparisons(order))

    def family(self, models: int) -> IndexArray:
        return self._drop_recorded_pairs(Ranking().family(models))

    def _drop_recorded_pairs(self, pairs: IndexArray) -> IndexArray:
        return pairs[~np.isin(pairs, sorted(self.recorded)).all(axis=1)]


PLACE = ObjectiveEntry(
    name="place",
    make=Place,
    summary="new models among recorded ones",
    description="Every model that is asked is compared with its neighbours in the order, recorded ones among them.",
    in_order=True,
)


@dataclass(frozen=True)
class Best(Objective):
    """The leader against every other model.

    Examples:
        Of three models, of which the last is the first in the order:

        >>> import numpy as np
        >>> from adaptive_eval.core import Best
        >>> Best().comparisons(np.array([2, 0, 1])).tolist()
        [[2, 0], [2, 1]]
    """

    def comparisons(self, order: IndexArray) -> IndexArray:
        return np.stack([np.full(len(order) - 1, order[0]), order[1:]], axis=1)

    def family(self, models: int) -> int:
        return models - 1


@dataclass(frozen=True)
class Cheapest(Best):
    """The cheapest model that is not more than `delta` behind any other; `cheapest` has how it is chosen.

    Before that its comparisons are those of `Best`.

    Examples:
        >>> from adaptive_eval.core import Cheapest
        >>> Cheapest(0.02).margin.delta
        0.02
    """

    delta: float = MARGIN
    gpu_hour: float = 0.0

    def __post_init__(self) -> None:
        require(self.delta > 0.0, "delta must be positive", self.delta)
        require(self.gpu_hour >= 0.0, "a GPU hour must not have a negative price", self.gpu_hour)

    @property
    def margin(self) -> Margin:
        return Margin(None, self.delta)


CHEAPEST = ObjectiveEntry(
    name="cheapest",
    make=Cheapest,
    summary="the cheapest model that will do",
    description="The cheapest model that is not more than {delta} behind any other is chosen.",
    options=(
        Option(
            name="delta",
            type="margin",
            description='How far behind the best the chosen model may be: 0.02 or "2%" (cheapest; default 0.02).',
            example=0.02,
            default="0.02",
        ),
        Option(
            name="gpu_hour",
            type="number",
            description="USD that an hour of one GPU costs, for models with `gpus` (cheapest).",
            example=2.5,
            default="none",
        ),
    ),
)


BEST = ObjectiveEntry(
    name="best",
    make=Best,
    summary="the leader against all others",
    description="The leader is compared with every other model.",
)


@dataclass(frozen=True)
class TopK(Objective):
    """Each of the first k against each of the rest.

    Examples:
        Of three models, of which the last is the first in the order:

        >>> import numpy as np
        >>> from adaptive_eval.core import TopK
        >>> TopK(2).comparisons(np.array([2, 0, 1])).tolist()
        [[2, 1], [0, 1]]
    """

    k: int

    def __post_init__(self) -> None:
        require(self.k >= 1, "k must be at least 1", self.k)

    def comparisons(self, order: IndexArray) -> IndexArray:
        inside, outside = order[: self.k], order[self.k :]
        return np.stack([np.repeat(inside, len(outside)), np.tile(outside, len(inside))], axis=1)

    def family(self, models: int) -> int:
        return self.k * (models - self.k)


TOP_K = ObjectiveEntry(
    name="top_k",
    make=TopK,
    summary="the first k against the rest",
    description="Each of the first {k} models is compared with each of the others.",
    options=(Option(name="k", type="models", description="Number of top models to find (top_k).", example=1),),
)


@dataclass(frozen=True)
class Baseline(Objective):
    """Every model against a given one.

    Examples:
        Of three models, of which the last is the first in the order:

        >>> import numpy as np
        >>> from adaptive_eval.core import Baseline
        >>> Baseline(1).comparisons(np.array([2, 0, 1])).tolist()
        [[1, 0], [1, 2]]
    """

    baseline: int

    def comparisons(self, order: IndexArray) -> IndexArray:
        return self.family(len(order))

    def family(self, models: int) -> IndexArray:
        others = np.flatnonzero(np.arange(models) != self.baseline)
        return np.stack([np.full(len(others), self.baseline), others], axis=1)


def _baseline(models: Sequence[str], baseline: str) -> Baseline:
    return Baseline(models.index(baseline))


BASELINE = ObjectiveEntry(
    name="baseline",
    make=_baseline,
    summary="all against one",
    description="Every model is compared with {baseline}.",
    options=(
        Option(
            name="baseline",
            type="model",
            description="Name of the model that all others are compared with (baseline).",
            example="model-a",
        ),
    ),
)


@dataclass(frozen=True)
class Gate(Objective):
    """Is every model better than the baseline, or than a value, less delta, or worse?

    This is the objective baseline or threshold with `gate`.

    Examples:
        Two models against 0.62, with three points of tolerance:

        >>> import numpy as np
        >>> from adaptive_eval.core.objectives import Gate
        >>> from adaptive_eval.core.settings import Margin
        >>> Gate(Margin(baseline=2, delta=0.03), value=0.62).comparisons(np.array([1, 0])).tolist()
        [[1, 2], [0, 2]]
    """

    given: Margin
    value: float | None = None
    """The value of a gate without a baseline."""

    def __post_init__(self) -> None:
        require(self.given.delta >= 0.0, "a gate's delta must not be negative", self.given.delta)

    @property
    def reference(self) -> float | None:
        return self.value

    @property
    def margin(self) -> Margin:
        return self.given

    def comparisons(self, order: IndexArray) -> IndexArray:
        return self._without_margin.comparisons(order)

    def family(self, models: int) -> IndexArray:
        return self._without_margin.family(models)

    @property
    def _without_margin(self) -> Baseline | Threshold:
        if self.value is not None:
            return Threshold(self.value)
        assert self.given.baseline is not None
        return Baseline(self.given.baseline)


@dataclass(frozen=True)
class Pairs(Objective):
    """A given list of pairs.

    Examples:
        Of three models, of which the last is the first in the order:

        >>> import numpy as np
        >>> from adaptive_eval.core import Pairs
        >>> Pairs(((0, 2), (1, 2))).comparisons(np.array([2, 0, 1])).tolist()
        [[0, 2], [1, 2]]
    """

    pairs: tuple[tuple[int, int], ...]

    def comparisons(self, order: IndexArray) -> IndexArray:
        return self.family(len(order))

    def family(self, models: int) -> IndexArray:
        return np.array(self.pairs, dtype=np.intp).reshape(-1, 2)


def _pairs(models: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Pairs:
    return Pairs(tuple((models.index(first), models.index(second)) for first, second in pairs))


PAIRS = ObjectiveEntry(
    name="pairs",
    make=_pairs,
    summary="those listed",
    description="The {pairs} pairs that the configuration names are compared.",
    options=(
        Option(
            name="pairs", type="pairs", description="Pairs of model names (pairs).", example=(("model-a", "model-b"),)
        ),
    ),
)


@dataclass(frozen=True)
class PrecisionOf(Objective):
    """Each model's score to within a half-width, judged by the rule `Precision`.

    Each model is compared with a value far from every score, so that only the precision of the score matters: the rule
    scales its boundary with that |z|, and power is 0 or 1, as for the width of an interval.
    """

    reference: ClassVar[float] = -1e6
    compares: ClassVar[bool] = False

    half_width: float

    def __post_init__(self) -> None:
        require(self.half_width > 0.0, "half_width must be positive", self.half_width)

    @property
    def rule(self) -> Rule:
        return Precision(self.half_width)

    def comparisons(self, order: IndexArray) -> IndexArray:
        return np.stack([order, np.full(len(order), len(order))], axis=1)

    def family(self, models: int) -> int:
        return 1


PRECISION_OF = ObjectiveEntry(
    name="precision",
    make=PrecisionOf,
    summary="every score, as precise as asked for",
    description="Every score is measured until its 95% interval is at most ±{half_width}.",
    options=(
        Option(
            name="half_width",
            type="difference",
            description="Half the width of each model's 95% interval at the end, whatever `stopping.confidence` is: "
            '0.02 or "2%" (precision).',
            example=0.02,
        ),
    ),
    least_models=1,
    compares=False,
    own_rule=PRECISION,
)


@dataclass(frozen=True)
class Threshold(Objective):
    """Each model against a fixed value: is its score above it?

    Examples:
        Of three models, of which the last is the first in the order:

        >>> import numpy as np
        >>> from adaptive_eval.core import Threshold
        >>> Threshold(0.5).comparisons(np.array([2, 0, 1])).tolist()
        [[2, 3], [0, 3], [1, 3]]
    """

    value: float

    @property
    def reference(self) -> float:
        return self.value

    def comparisons(self, order: IndexArray) -> IndexArray:
        return np.stack([order, np.full(len(order), len(order))], axis=1)

    def family(self, models: int) -> IndexArray:
        return self.comparisons(np.arange(models))


THRESHOLD = ObjectiveEntry(
    name="threshold",
    make=Threshold,
    summary="every score against a value",
    description="Every score is compared with {value}.",
    options=(
        Option(
            name="value", type="score", description="Score that each model is compared with (threshold).", example=0.6
        ),
    ),
    least_models=1,
)
