"""What the run would cost at every pace that `trials.favour` knows, in a few of the worlds of its forecast."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

import numpy as np

from adaptive_eval.config.pace import Favour
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.study.simulated import Scene, Simulated
from adaptive_eval.study.types import PaceCosts

MOST_AT_ONCE = 2_000_000
"""Trials of a design that is simulated so often."""


def paces_to_try(prepared: PreparedRun, scene: Scene) -> tuple[Favour, ...]:
    """All that apply; none where the pace is given by itself, or where they would take too long."""
    trials = scene.bench.models * scene.bench.questions * prepared.plan.trials.max
    if prepared.config.allocation.lookahead is not None or trials > MOST_AT_ONCE:
        return ()
    batched = any(model.batch is not None for model in prepared.config.models)
    return tuple(favour for favour in get_args(Favour) if batched or favour != "batches")


def pace_costs(prepared: PreparedRun, scene: Scene, paces: Mapping[Favour, Sequence[Simulated]]) -> Iterator[PaceCosts]:
    """Medians over the runs of each pace."""
    for favour, runs in paces.items():
        yield _medians(favour, runs, prepared, scene)


def _medians(favour: str, runs: Sequence[Simulated], prepared: PreparedRun, scene: Scene) -> PaceCosts:
    usage, models = scene.served.usage, prepared.config.models
    priced, held = any(model.price is not None for model in models), _paid_by_the_hour(prepared, scene)

    def median(value: Callable[[Simulated], float], known: bool) -> float | None:
        return float(np.median([value(run) for run in runs])) if known else None

    def server_hours(run: Simulated) -> float:
        return sum(places * max(run.held[model] for model in models) for models, places in held) / 3600.0

    return PaceCosts(
        favour=favour,
        trials=float(np.median([run.trials for run in runs])),
        tokens=median(lambda run: run.tokens, usage.knows_tokens),
        usd=median(lambda run: run.usd, usage.knows_tokens and priced),
        server_hours=median(server_hours, usage.knows_seconds and bool(held)),
        seconds=median(lambda run: run.seconds, usage.knows_seconds),
        decided=float(np.median([run.decided for run in runs])),
    )


def _paid_by_the_hour(prepared: PreparedRun, scene: Scene) -> list[tuple[Sequence[int], int]]:
    """The models of places that are paid by the hour, and how many places: those that the run starts, and those whose
    GPUs are named."""
    turned = {model for group in scene.served.in_turn for model in group.models}
    alone = [
        ((number,), len(model.replicas))
        for number, model in enumerate(prepared.config.models)
        if number not in turned and (model.launch is not None or model.gpus is not None)
    ]
    return [*alone, *((group.models, len(group.places)) for group in scene.served.in_turn)]
