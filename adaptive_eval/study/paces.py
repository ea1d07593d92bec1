"""Costs of the run at every pace that `trials.favour` knows, in a few of the worlds of its forecast."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

import numpy as np

from adaptive_eval.config.pace import Favour
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.study.grading import paid_servers
from adaptive_eval.study.scenario import Scenario
from adaptive_eval.study.simulated import SimulatedRun
from adaptive_eval.study.types import PaceCosts

MOST_AT_ONCE = 2_000_000
"""Trials of a design that is simulated so often."""


def paces_to_try(prepared: PreparedRun, scenario: Scenario) -> tuple[Favour, ...]:
    """All paces that apply and do not take too long; none if the pace is given by itself, or all would."""
    trials = scenario.bench.models * scenario.bench.questions * prepared.plan.trials.max
    config = prepared.config
    given = config.trials.lookahead is not None or config.trials.draw is not None or config.batched
    return () if given or trials > MOST_AT_ONCE else get_args(Favour)


def pace_costs(
    prepared: PreparedRun,
    scenario: Scenario,
    paces: Mapping[Favour, Sequence[SimulatedRun]],
    own: Sequence[SimulatedRun],
) -> Iterator[PaceCosts]:
    """Costs at each pace, by its runs in the first worlds of the run's `own`.

    Worlds differ more than paces do in one of them: so told is the run's median, times the median ratio of the two in
    the same world.
    """
    for favour, runs in paces.items():
        yield _costs_at_pace(favour, runs, own, prepared, scenario)


def _costs_at_pace(
    favour: str, runs: Sequence[SimulatedRun], own: Sequence[SimulatedRun], prepared: PreparedRun, scenario: Scenario
) -> PaceCosts:
    usage, priced = scenario.served.usage, any(one.price is not None for one in paid_servers(prepared.config))
    held = _paid_by_the_hour(prepared, scenario)

    def median(value: Callable[[SimulatedRun], float], known: bool = True) -> float | None:
        return ratio_estimate(list(map(value, runs)), list(map(value, own))) if known else None

    def server_hours(run: SimulatedRun) -> float:
        return sum(places * max(run.held[model] for model in models) for models, places in held) / 3600.0

    timed = [run for run in own if run.held]
    return PaceCosts(
        favour=favour,
        trials=min(median(lambda run: run.trials) or 0.0, scenario.most_trials),
        tokens=median(lambda run: run.tokens, usage.knows_tokens),
        usd=median(lambda run: run.usd, usage.knows_tokens and priced),
        server_hours=(
            ratio_estimate(list(map(server_hours, runs)), list(map(server_hours, timed)))
            if usage.knows_seconds and held
            else None
        ),
        seconds=median(lambda run: run.seconds, usage.knows_seconds),
        decided=_decided_at_pace(runs, own),
    )


def _decided_at_pace(runs: Sequence[SimulatedRun], own: Sequence[SimulatedRun]) -> float:
    """Comparisons that are decided, in the same way, by the difference."""
    more = [one.decided - other.decided for one, other in zip(runs, own, strict=False)]
    return max(float(np.median([run.decided for run in own]) + np.median(more)), 0.0)


def ratio_estimate(few: Sequence[float], own: Sequence[float]) -> float:
    """The median over all worlds of what is known of the first `few`, by its ratio to the run's `own` there.

    What is not known of a world is nan.
    """
    if not np.all(np.asarray(own[: len(few)]) > 0.0):
        return float(np.nanmedian(few))
    ratios = np.asarray(few) / np.asarray(own[: len(few)])
    return float(np.nanmedian(own) * np.nanmedian(ratios))


def _paid_by_the_hour(prepared: PreparedRun, scenario: Scenario) -> list[tuple[Sequence[int], int]]:
    """The models of places that are paid by the hour, and how many places: those that the run starts, and those whose
    GPUs are named."""
    turned = {model for group in scenario.served.in_turn for model in group.models}
    alone = [
        ((number,), len(model.replicas))
        for number, model in enumerate(prepared.config.models)
        if number not in turned and (model.launch is not None or model.gpus)
    ]
    return [*alone, *((group.models, len(group.places)) for group in scenario.served.in_turn)]
