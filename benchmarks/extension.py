"""What raising `trials.max` again and again costs: calls between exact ties, and power against a run begun so.

    python benchmarks/extension.py [--quick] [--runs 1000] [--json PATH]

Two models on 30 questions, at least 4 trials a question. Whoever sees that the pair is not decided raises the horizon,
8 -> 16 -> 32 -> 64; the same answers are then judged by a run that begins with 64, and by what raising the horizon did
before: all looks taken anew, each time as if that horizon had always been there.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import Check, arguments, at_most, markdown, publish, with_errors

from adaptive_eval.core.evidence import Evidence, estimate
from adaptive_eval.core.judge import forecast_power
from adaptive_eval.core.optimal import Optimal, Spacing
from adaptive_eval.core.rules import Anytime, Rule, is_giving_up
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.stages import extended

Kind = type[Optimal] | type[Sequential] | type[Anytime]
"""`Sequential` is what `optimal` is where nobody knows how looks will lie."""
QUESTIONS, LEAST = 30, 4
HORIZONS = (8, 16, 32, 64)
PROMISED = 0.10
SEED = 20261
WORLDS = {"spread": (0.6, 0.6), "near-deterministic": (0.1, 0.1), "alike": (400.0, 400.0)}
"""Beta parameters of the questions' difficulties."""
LEADS = (0.02, 0.035, 0.05)
"""True differences for the power, in the world `spread`."""


class Fate(NamedTuple):
    """Of each pair: the sign of its call (0: none), and its trials a question and model."""

    call: NDArray[np.int8]
    trials: NDArray[np.int64]


def main() -> None:
    options = arguments(__doc__, runs=1000, quick_runs=60).parse_args()
    runs, checks, ties, power = options.runs, list[Check](), list[tuple[object, ...]](), list[tuple[object, ...]]()
    kinds: list[tuple[str, float | None, Kind]] = [
        *((world, 0.30, Optimal) for world in WORLDS),
        *((world, None, Sequential) for world in WORLDS),
        ("spread", 0.30, Anytime),
    ]
    for world, futility, rule in kinds:
        name, (raised, begun, anew) = rule.__name__.lower(), lives(runs, world, 0.0, futility, rule)
        called, *others = (float(np.mean(call)) for call in (raised.call != 0, begun.call != 0, anew))
        ties.append((world, name, called, *others))
        what = f"false winners, {world}, {name}, 8 -> 16 -> 32 -> 64"
        checks.append(at_most(what, called, with_errors(PROMISED, runs), 4))
    for lead in LEADS:
        fates = lives(runs, "spread", lead, 0.30, Optimal)[:2]
        found = [float(np.mean(fate.call == 1)) for fate in fates]
        power.append((f"{lead:.3f}", *found, *(f"{fate.trials.mean():.1f}" for fate in fates)))
    head = ("raised", "begun with 64")
    publish(
        options,
        "Raising the horizon",
        f"Exact ties: share of {runs} runs that end with a winner.",
        markdown(("world", "rule", *head, "all looks taken anew"), ties),
        f"Power: share of {runs} runs that find the better model, and trials a question.",
        markdown(("true difference", *head, *(f"trials, {design}" for design in head)), power),
        checks=checks,
    )


def lives(
    pairs: int, world: str, lead: float, futility: float | None, rule: Kind
) -> tuple[Fate, Fate, NDArray[np.bool_]]:
    """Independent pairs with a raised horizon, those begun with the last one, and which are called at any horizon if
    all looks are taken anew; by the core's own estimates and rules, every model one trial a question a round."""
    rng = np.random.default_rng([SEED, list(WORLDS).index(world), round(1000 * lead)])
    p = rng.beta(*WORLDS[world], (pairs, QUESTIONS))
    better = p + (1.0 - p) * lead / np.maximum((1.0 - p).mean(axis=1, keepdims=True), lead)
    chances = np.stack([better, p], axis=1).reshape(2 * pairs, QUESTIONS)
    wins = np.cumsum(rng.random((HORIZONS[-1], *chances.shape)) < chances, axis=0, dtype=np.int32)
    alone = [_life(wins, (horizon,), rule, futility) for horizon in HORIZONS]
    return _life(wins, HORIZONS, rule, futility), alone[-1], np.any([fate.call for fate in alone], axis=0)


def _life(wins: NDArray[np.int32], horizons: Sequence[int], kind: Kind, futility: float | None) -> Fate:
    """Each pair until it is called; when all others are given up or at the horizon, that is raised."""
    pairs = wins.shape[1] // 2
    start, step = LEAST / horizons[0], 1.0 / horizons[0]
    rule: Rule = (
        Optimal(start=start, spacing=Spacing(0.0, 2.0 * step, 0.5 * step), rests=True)
        if kind is Optimal
        else kind(start=start)
    )
    call, trials = np.zeros(pairs, np.int8), np.full(pairs, LEAST)
    looked: list[Evidence] = []
    for horizon in horizons:
        seen = [_evidence(wins, trials, horizon)]
        if looked:
            rule = extended(rule, looked, seen[0], 0.0)
        going = np.ones(pairs, bool)
        while True:
            now = seen[-1]
            reached = going & (call == 0) & (np.abs(now.z) >= rule.boundary(now))
            call = np.where(reached, np.sign(now.z), call).astype(np.int8)
            going &= (call == 0) & (trials < horizon)
            if is_giving_up(rule):
                going &= ~rule.gives_up(now)
            threshold = rule.futility if is_giving_up(rule) else futility
            if threshold is not None:
                power = forecast_power(now, rule, 0.0, np.ones(pairs))
                going &= power >= threshold * (1.0 - now.information)
            if not going.any():
                break
            trials = trials + going
            seen.append(_evidence(wins, trials, horizon))
        looked = seen
    return Fate(call, trials)


def _evidence(wins: NDArray[np.int32], trials: NDArray[np.int64], horizon: int) -> Evidence:
    """Models 0 and 1, 2 and 3, and so on."""
    per_model = np.repeat(trials, 2)
    right = wins[per_model - 1, np.arange(len(per_model))]
    counts = np.stack([per_model[:, None] - right, right], axis=-1)
    estimates = estimate(counts, np.array([0.0, 1.0]), "self", np.array(horizon))
    score, var, noise, at_end = (
        values.reshape(-1, 2)
        for values in (estimates.score, estimates.var, estimates.noise, estimates.noise_at_horizon)
    )
    sigma = np.sqrt(var.sum(axis=1))
    z = (score[:, 0] - score[:, 1]) / sigma
    return Evidence(
        models=len(per_model),
        against_reference=False,
        first=np.arange(0, len(per_model), 2),
        second=np.arange(1, len(per_model), 2),
        difference=score[:, 0] - score[:, 1],
        sigma=sigma,
        z=z,
        information=at_end.sum(axis=1) / noise.sum(axis=1),
    )


if __name__ == "__main__":
    main()
