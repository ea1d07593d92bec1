"""From simulated runs to what is said of them."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from adaptive_eval import __version__
from adaptive_eval.forecast.limits import limits_of
from adaptive_eval.forecast.pilot import Pilot
from adaptive_eval.forecast.scene import Scene
from adaptive_eval.forecast.simulated import DECIDED, Ended, Simulated, priced, tallied
from adaptive_eval.forecast.simulations import Simulations
from adaptive_eval.forecast.types import (
    FORMAT,
    Cell,
    Costs,
    Forecast,
    Outlook,
    Range,
    Spent,
    Undecided,
)
from adaptive_eval.forecast.variants import CAPS
from adaptive_eval.run.prepare import Prepared
from scorio.moments import FloatArray

MOST_UNDECIDED = 10
HOUR = 3600.0


def summarise(
    prepared: Prepared,
    scene: Scene,
    pilot: Pilot | None,
    worlds: Sequence[FloatArray],
    simulated: Simulations,
    basis: Sequence[str],
) -> Forecast:
    """The forecast."""
    weights = prepared.plan.bench.weights
    truth = np.array([(world @ weights).mean(axis=1) for world in worlds])
    within = simulated.runs[simulated.configured]
    plan = scene.plan(simulated.configured)
    gaps = -np.diff(-np.sort(-truth, axis=1), axis=1).ravel()
    return Forecast(
        format=FORMAT,
        name=prepared.config.name,
        version=__version__,
        worlds=len(worlds),
        table_worlds=simulated.table_worlds,
        seed=scene.seed,
        pilot=None if pilot is None else pilot.name,
        basis=tuple(basis),
        decisions=prepared.config.stated(),
        models=prepared.models,
        scores=tuple(range_of(column) for column in truth.T),
        gap=range_of(gaps) if len(gaps) else Range(0.0, 0.0, 0.0),
        need=_outlook(simulated.runs[simulated.need], scene, prepared),
        capped=None if simulated.capped is None else _outlook(within, scene, prepared),
        spent=_spent(scene, prepared),
        fixed=_fixed(scene, worlds, prepared),
        table=_table(simulated),
        undecided=_undecided(within, scene.names),
        limits=limits_of(within, plan, worlds[: simulated.table_worlds]),
    )


def range_of(values: Sequence[float] | FloatArray) -> Range:
    """The median and the 80% interval: quantile p of n values is number p (n + 1), so that a further one lies in it."""
    low, median, high = np.quantile(np.asarray(values, dtype=float), (0.1, 0.5, 0.9), method="weibull").tolist()
    return Range(median, low, high)


def _outlook(runs: Sequence[Simulated], scene: Scene, prepared: Prepared) -> Outlook:
    ended = Counter(run.reason for run in runs)
    return Outlook(
        costs=_costs(runs, scene, prepared),
        reached=float(np.mean([run.reached for run in runs])),
        decided=range_of([run.decided for run in runs]),
        comparisons=max(len(run.comparisons) for run in runs),
        ended={reason: times / len(runs) for reason, times in ended.most_common()},
    )


def _known(scene: Scene, prepared: Prepared) -> dict[str, bool]:
    """What the configuration and the usage tell of: tokens, usd, gpu_hours, seconds."""
    models, usage = prepared.config.models, scene.served.usage
    return {
        "tokens": usage.knows_tokens,
        "usd": usage.knows_tokens and any(model.price is not None for model in models),
        "gpu_hours": usage.knows_seconds and any(model.gpus is not None for model in models),
        "seconds": usage.knows_seconds,
    }


def _costs(runs: Sequence[Simulated], scene: Scene, prepared: Prepared) -> Costs:
    known = _known(scene, prepared)

    def over(name: str, of: Callable[[Simulated], float]) -> Range | None:
        return range_of([of(run) for run in runs]) if known[name] else None

    return Costs(
        trials=range_of([run.trials for run in runs]),
        tokens=over("tokens", lambda run: run.tokens),
        usd=over("usd", lambda run: run.usd),
        gpu_hours=over("gpu_hours", lambda run: run.gpu_seconds / HOUR),
        seconds=over("seconds", lambda run: scene.elapsed + run.seconds),
    )


def _spent(scene: Scene, prepared: Prepared) -> Spent | None:
    recorded, known = scene.served.recorded, _known(scene, prepared)
    if recorded is None:
        return None
    tokens, usd, gpu_seconds = priced(tallied(recorded, scene.bench.categories), scene.served.costs)
    return Spent(
        trials=int((recorded >= 0).sum()),
        tokens=tokens if known["tokens"] else None,
        usd=usd if known["usd"] else None,
        gpu_hours=gpu_seconds / HOUR if known["gpu_hours"] else None,
        seconds=scene.elapsed,
    )


def _fixed(scene: Scene, worlds: Sequence[FloatArray], prepared: Prepared) -> dict[str, float | None]:
    """The maximum of trials for everyone, at the mean over the worlds."""
    each, known = prepared.plan.trials.max, _known(scene, prepared)
    counts = each * np.mean([world.sum(axis=1) for world in worlds], axis=0)
    tokens, usd, gpu_seconds = priced(counts, scene.served.costs)
    return {
        "trials": float(each * scene.bench.models * scene.bench.questions),
        "tokens": tokens if known["tokens"] else None,
        "usd": usd if known["usd"] else None,
        "gpu_hours": gpu_seconds / HOUR if known["gpu_hours"] else None,
    }


def _table(simulated: Simulations) -> tuple[Cell, ...]:
    cells = []
    for (factor, confidence), variant in simulated.table.items():
        runs = simulated.runs[variant][: simulated.table_worlds]
        decided = [run.decided / max(len(run.comparisons), 1) for run in runs]
        caps = {name: getattr(simulated.reference, name) for name in CAPS}
        cells.append(
            Cell(
                factor=factor,
                confidence=confidence,
                budget={name: cap * factor for name, cap in caps.items() if cap is not None},
                reached=float(np.mean([run.reached for run in runs])),
                decided=float(np.mean(decided)),
                trials=float(np.median([run.trials for run in runs])),
            )
        )
    return tuple(cells)


def _undecided(runs: Sequence[Simulated], names: Sequence[str]) -> tuple[Undecided, ...]:
    """The comparisons that are left undecided most often."""
    left: dict[frozenset[int | None], list[Ended]] = {}
    for run in runs:
        for one in run.comparisons:
            if one.verdict not in DECIDED:
                left.setdefault(frozenset((one.better, one.worse)), []).append(one)
    likeliest = sorted(left.values(), key=lambda ends: -len(ends))[:MOST_UNDECIDED]
    return tuple(_undecided_pair(ends, names, len(runs)) for ends in likeliest)


def _undecided_pair(ends: Sequence[Ended], names: Sequence[str], runs: int) -> Undecided:
    (better, worse), _ = Counter((one.better, one.worse) for one in ends).most_common(1)[0]
    needed, gap = (float(np.median([getattr(one, name) for one in ends])) for name in ("trials_needed", "gap"))
    return Undecided(
        better=names[better],
        worse=None if worse is None else names[worse],
        chance=len(ends) / runs,
        gap=gap if np.isfinite(gap) else None,
        trials_needed=needed if np.isfinite(needed) else None,
    )
