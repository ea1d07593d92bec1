"""Greedy answers in a forecast: one to each question at temperature 0 of every model, which are asked first.

What they say of the models is not known before, so simulated runs begin without it; what they take of the caps is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from adaptive_eval.record.lines import duration
from adaptive_eval.record.starting_point import StartingPoint
from adaptive_eval.study.fixed import fixed_seconds
from adaptive_eval.study.simulated import NO_GREEDY_ANSWERS, GreedyAnswers, Scene, priced
from scorio.moments import FloatArray


def greedy_answers(beginning: StartingPoint, scene: Scene, worlds: Sequence[FloatArray]) -> GreedyAnswers:
    """Those of a run that is to begin or go on: what is there is known, the rest costs what trials cost, in the mean
    over the worlds."""
    there, cost = beginning.prepared.plan.spent_first
    if beginning.with_prior is None:
        return GreedyAnswers(there, *cost)
    kept = set() if beginning.kept is None else set(beginning.kept.outcomes)
    lacking = scene.bench.asked & np.array([name not in kept for name in scene.names])
    counts = np.mean([world.sum(axis=1) for world in worlds], axis=0) * lacking[:, None]
    tokens, usd, gpu_seconds = priced(counts, scene.served.costs)
    afresh = replace(scene, served=scene.served._replace(recorded=None))
    return GreedyAnswers(
        there + int(lacking.sum()) * scene.bench.questions,
        cost.tokens + tokens,
        cost.usd + usd,
        cost.gpu_seconds + gpu_seconds,
        fixed_seconds(afresh, counts) or 0.0,
    )


def greedy_words(greedy: GreedyAnswers) -> Iterator[str]:
    """What is assumed of them, in a sentence."""
    if greedy == NO_GREEDY_ANSWERS:
        return
    tokens = f", {greedy.tokens:,.0f} tokens" if greedy.tokens else ""
    time = f", {duration(greedy.to_come)}" if greedy.to_come else ""
    yield (
        f"greedy answers come first: {greedy.trials:,} trials{tokens}{time}, which all figures of the run contain; "
        "what they will say of the models is not known yet, and is left out"
    )
