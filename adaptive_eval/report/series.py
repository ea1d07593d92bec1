"""What the plots over looks show, as plain series: worked out here, drawn elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.reading.types import LookView, RunView
from scorio.rank import compare_rankings


class PairPath(NamedTuple):
    """One comparison over the looks: z towards the model that was ahead last, against the boundary."""

    better: str
    worse: str | None
    trials: tuple[int, ...]
    """Of all models, at each look that judged the pair."""
    z: tuple[float | None, ...]
    boundary: tuple[float | None, ...]
    verdict: str
    """At the last of them."""


class Convergence(NamedTuple):
    """How the ranking settled: after so many trials, its agreement with the last one and the share that is decided."""

    trials: tuple[int, ...]
    tau: tuple[float, ...]
    """Kendall's tau-b of the order at a look with that at the last."""
    decided: tuple[float, ...]


def pair_paths(view: RunView) -> list[PairPath]:
    """Every pair that is compared at the last look, as far back as it was compared."""
    if not view.looks:
        return []
    paths = []
    for last in view.looks[-1].pairs:
        trials, z, boundary = [], [], []
        for look in view.looks:
            for pair in look.pairs:
                if {pair.better, pair.worse} == {last.better, last.worse}:
                    turned = -1.0 if pair.better != last.better else 1.0
                    trials.append(sum(look.trials))
                    z.append(None if pair.z is None else turned * pair.z)
                    boundary.append(pair.boundary)
        path = PairPath(last.better, last.worse, tuple(trials), tuple(z), tuple(boundary), last.verdict)
        paths.append(path)
    return paths


def wanted_width(view: RunView) -> float | None:
    """The half-width that the objective precision wants; None for the others, which compare."""
    objective = cast(Mapping[str, Any], view.configuration["objective"])
    return cast(float | None, objective["half_width"])


def width_paths(view: RunView, wanted: float) -> list[PairPath]:
    """For the objective precision: half of each score's 95% interval in the place of z, against what is `wanted`."""
    paths = []
    for last in view.looks[-1].pairs if view.looks else ():
        seen = [
            (look, look.sigmas[look.models.index(last.better)]) for look in view.looks if last.better in look.models
        ]
        trials = tuple(sum(look.trials) for look, _ in seen)
        half = tuple(None if sigma is None else TWO_SIDED_95 * sigma for _, sigma in seen)
        paths.append(PairPath(last.better, None, trials, half, (wanted,) * len(seen), last.verdict))
    return paths


def ranks(view: RunView) -> dict[str, list[int | None]]:
    """The place of each model at each look, 1 for the best; None where it had no score."""
    places = [{name: at + 1 for at, name in enumerate(look.order)} for look in view.looks]
    return {name: [place.get(name) for place in places] for name in view.models}


def convergence(view: RunView) -> Convergence:
    """How the ranking settled, over the looks."""
    last = view.looks[-1].order
    return Convergence(
        trials=tuple(sum(look.trials) for look in view.looks),
        tau=tuple(_agreement(look.order, last) for look in view.looks),
        decided=tuple(_decided(look) for look in view.looks),
    )


def _agreement(order: Sequence[str], last: Sequence[str]) -> float:
    if len(last) < 2:
        return 1.0
    place = {name: at for at, name in enumerate(order)}
    return compare_rankings([place[name] for name in last], range(len(last))).tau_b


def _decided(look: LookView) -> float:
    done = sum(pair.verdict in ("resolved", "tied") for pair in look.pairs)
    return done / len(look.pairs) if look.pairs else 1.0
