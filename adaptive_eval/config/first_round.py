"""Whether the caps bear the first round at its worst, and if not, which sums would, and which settings lower these."""

import math
from collections.abc import Iterator

import numpy as np

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.judge import Judge

UNITS = {"trials": (1.0, 0), "tokens": (1.0, 0), "usd": (1.0, 2), "gpu_seconds": (3600.0, 3)}
"""How `budget` counts each: units of the plan in one of its own, and its decimals."""


def first_round_problems(prepared: PreparedRun) -> Iterator[str]:
    """A sentence for each cap that does not bear the first round, by which nothing would be asked."""
    plan, config = prepared.plan, prepared.config
    there = 0 if plan.first is None else plan.first
    trials = np.maximum(plan.opening - there, 0).sum(axis=1)
    before = np.array((plan.spent_first.trials, *plan.spent_first.cost))
    needs = before + trials @ np.array([(1.0, *cost) for cost in plan.bench.worst_cost])
    for (name, (unit, decimals)), need in zip(UNITS.items(), needs.tolist(), strict=True):
        cap = getattr(plan.budget, name)
        if cap is None or need <= cap:
            continue
        *others, last = _lowering(config, name)
        key = "gpu_hours" if name == "gpu_seconds" else name
        enough = math.ceil(round(need / unit * 10**decimals, 6)) / 10**decimals
        yield (
            f"no answers will be requested: the first round may cost up to {enough:,.{decimals}f} {_words(key)}, and "
            f"budget.{key} is {cap / unit:,.6g}. Set budget.{key} to {enough:.{decimals}f} or more, or lower "
            f"{', '.join(others)}{' or ' if others else ''}{last}"
        )


def _words(key: str) -> str:
    return {"usd": "USD", "gpu_hours": "GPU hours"}.get(key, key)


def _lowering(config: RunConfig, name: str) -> Iterator[str]:
    """The keys that lower what the first round may cost, those of one answer first."""
    timed, grader = name == "gpu_seconds", config.grader
    if name != "trials":
        yield "sampling.timeout" if timed else "sampling.max_tokens"
        if isinstance(grader, AskedGrader):
            yield "grader.sampling.timeout" if timed else "grader.longest"
            if not timed and (grader.sampling.max_tokens or 0) > 1:
                yield "grader.sampling.max_tokens"
            if isinstance(grader, Judge) and grader.votes > 1:
                yield "grader.votes"
    if config.trials.draw is not None:
        yield "trials.draw"
    elif config.trials.min > 1:
        yield "trials.min"
    elif name == "trials":
        yield "the number of questions (trials.draw)"
