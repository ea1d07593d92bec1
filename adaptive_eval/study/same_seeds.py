"""Sentences of a forecast on models that share their seeds; runs are simulated as if sharing had no effect.

A server's use of a seed is not known in advance. So the simulated runs are the most that such a run takes, and the
least is shown for comparison: what near copies took. If the models of a pilot shared their seeds, their coupling is
known, with its consequences.
"""

from collections.abc import Iterator

import numpy as np

from adaptive_eval.config.prepare import PreparedRun, stored_config
from adaptive_eval.record.pairing import pairing_in_words
from adaptive_eval.study.pilot import Pilot
from scorio.sinf.paired import coupling

NEAR_COPIES = 0.12
"""Trials of a gate between a model and its copy with 8-bit weights, relative to seeds of their own
(benchmarks/coupling.md)."""


def same_seed_sentences(prepared: PreparedRun, pilot: Pilot | None, trials: float) -> Iterator[str]:
    """The sentences; `trials` are those of the simulated runs."""
    if not prepared.plan.coupled:
        return
    least = max(NEAR_COPIES * trials, float(prepared.plan.opening.sum()))
    yield (
        "models share their seeds, which is not simulated: the figures hold if answers are not correlated; models as "
        f"close as a copy with 8-bit weights is to its original take about {least:,.0f} trials"
    )
    if pilot is not None:
        yield from _pilot_pair_sentences(prepared, pilot)


def _pilot_pair_sentences(prepared: PreparedRun, pilot: Pilot) -> Iterator[str]:
    """Sentences on the coupling of each compared pair, in a pilot whose models shared their seeds."""
    plan, names = prepared.plan, prepared.models
    if stored_config(pilot.header).trials.seeds == "hashed":
        return
    for first, second in plan.objective.comparisons(np.arange(plan.bench.models)).tolist():
        one, two = pilot.outcomes[first], pilot.outcomes[second]
        both = (one >= 0) & (two >= 0)
        bench, questions = plan.bench, np.nonzero(both)[0]
        found = coupling(questions, bench.weights[one[both]], bench.weights[two[both]], bench.question_weights)
        if np.isfinite(found.variance):
            yield (
                f"in the pilot, {names[first]} and {names[second]} shared {found.trials:,} trials: "
                f"{pairing_in_words(found.variance)} (+- {found.sigma:.2f} were they independent)"
            )
