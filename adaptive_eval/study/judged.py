"""One replay judged by the truth: what it called wrongly, what it cost, and how busy it kept the servers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.result import Result
from adaptive_eval.core.types import Look, PairVerdict, Verdict
from adaptive_eval.study.timed import Timeline
from scorio.moments import FloatArray
from scorio.rank.order import pair_signs, tau_b


class SlotUse(NamedTuple):
    """Shares of slot-seconds that were busy while models were open."""

    slowest: float
    """Of the open model whose answers take longest, for which all others wait."""
    open: float
    """Of all open models together."""


def slot_use(timeline: Timeline, looks: Sequence[Look]) -> SlotUse:
    """Over the times between looks; a model is open in one if the look before it left one of its comparisons open."""
    edges = np.concatenate([[0.0], timeline.looks])
    busy = np.stack([np.diff(one.busy_until(edges)) for one in timeline.served], axis=1)
    offered = np.diff(edges)[:, None] * timeline.slots
    opened = open_models(looks)
    went_on = opened.any(axis=1)
    length = np.array([(one.end - one.start).mean() if len(one.end) else 0.0 for one in timeline.served])
    slowest = np.where(opened, length, -1.0).argmax(axis=1)
    at_slowest = np.arange(len(busy))[went_on], slowest[went_on]
    return SlotUse(
        slowest=float(busy[at_slowest].sum() / offered[at_slowest].sum()),
        open=float(busy[opened].sum() / offered[opened].sum()),
    )


def open_models(looks: Sequence[Look]) -> NDArray[np.bool_]:
    """(n, L): who was open before each of n looks, as the look before it has left them; before the first, everyone."""
    opened = np.zeros((len(looks), len(looks[0].order)), dtype=bool)
    opened[0] = True
    for index, look in enumerate(looks[:-1]):
        for pair in look.comparisons:
            if pair.verdict is Verdict.OPEN:
                opened[index + 1, pair.better] = True
                if pair.worse is not None:
                    opened[index + 1, pair.worse] = True
    return opened


EQUAL = 1e-12
"""True scores that are this close are equal: what is left is rounding."""


class JudgedReplay(NamedTuple):
    """What a replay cost, what it called, and how right it was; times are simulated, and nan where none were."""

    seed: int
    reason: str
    trials: int
    cost: float
    """Trials as a share of the maximum for everyone."""
    looks: int
    called: int
    """Comparisons that are resolved in today's direction."""
    tied: int
    out_of_reach: int
    wrong: int
    """Calls for the model that is truly worse or equal."""
    covered: float
    """The share of models whose 95% interval holds the true score."""
    tau_b: float
    """Kendall's tau-b of the scores with the true ones."""
    minutes: float
    busy: float
    """The share of its slots that the slowest open model kept busy; nan where models share theirs."""
    swaps: float
    """Changes of model on servers that models share."""


def judge_replay(
    seed: int, controller: Controller, truth: FloatArray, timeline: Timeline | None = None
) -> JudgedReplay:
    """Judge a replay that has had a look."""
    result = controller.result()
    if result is None:
        raise ValueError("a replay is judged after its first look, but it has had none; raise its budget")
    pairs = [one.verdict for one in result.comparisons]
    calls = [pair for pair in pairs if pair.verdict is Verdict.RESOLVED and not pair.reversed]
    reference = controller.plan.objective.reference
    return JudgedReplay(
        seed=seed,
        reason=str(result.reason),
        trials=result.trials,
        cost=result.trials / result.fixed_trials,
        looks=len(controller.looks),
        called=len(calls),
        tied=sum(pair.verdict is Verdict.TIED for pair in pairs),
        out_of_reach=sum(pair.verdict is Verdict.OUT_OF_REACH for pair in pairs),
        wrong=sum(is_wrong(pair, compared_scores(controller.plan, truth), reference) for pair in calls),
        covered=_covered(result, truth),
        tau_b=float(tau_b(pair_signs(_scores(result, len(truth)), EQUAL), pair_signs(truth, EQUAL))),
        minutes=np.nan if timeline is None else timeline.seconds / 60.0,
        busy=np.nan if timeline is None or timeline.swaps else slot_use(timeline, controller.looks).slowest,
        swaps=len(timeline.swaps) if timeline is not None and timeline.swaps else np.nan,
    )


def compared_scores(plan: Plan, truth: FloatArray) -> FloatArray:
    """True scores (L,) as the objective compares them."""
    margin = plan.objective.margin
    return truth if margin is None else margin.applied(truth)


def is_wrong(call: PairVerdict, truth: FloatArray, reference: float | None = None) -> bool:
    """Whether a call names the wrong one, or one of two equals; `reference` is what a lone model is compared with."""
    other = reference if call.worse is None else truth[call.worse]
    assert other is not None
    return bool(np.sign(call.z) * (truth[call.better] - other) <= EQUAL)


def _scores(result: Result, models: int) -> FloatArray:
    scores = np.empty(models)
    scores[[row.model for row in result.models]] = [row.score for row in result.models]
    return scores


def _covered(result: Result, truth: FloatArray) -> float:
    inside: Sequence[bool] = [row.lo <= truth[row.model] <= row.hi for row in result.models]
    return float(np.mean(inside))
