"""What raising `trials.max` again and again costs: calls between exact ties, and power against a run begun so.

    python benchmarks/extension.py [--quick] [--json PATH] [--markdown PATH]

Two models on 30 questions, at least 4 trials a question. Whoever sees that the pair is not decided raises the horizon,
8 -> 16 -> 32 -> 64; the same answers are then judged by a run that begins with 64, and by what raising the horizon did
before: all looks taken anew, each time as if that horizon had always been there.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.load import load_decisions
from adaptive_eval.config.planning import plan_on
from adaptive_eval.core import Bench, Controller, Outcome, Plan, Reason, Verdict
from adaptive_eval.core.anytime import Anytime
from adaptive_eval.core.evidence import Evidence, estimate
from adaptive_eval.core.judge import forecast_power
from adaptive_eval.core.optimal import Optimal, Spacing
from adaptive_eval.core.rules import Rule, is_giving_up
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.stages import StageBefore, extended

Kind = type[Optimal] | type[Sequential] | type[Anytime]
"""`Sequential` is what `optimal` is where nobody knows how looks will lie."""
QUESTIONS, LEAST = 30, 4
WEIGHTS = np.array([0.0, 1.0])
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


class Lives(NamedTuple):
    """The same answers, judged three ways."""

    extended: Fate
    at_once: Fate
    anew: NDArray[np.int8]


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    pairs = 60 if options.quick else 1000
    began = time.perf_counter()
    kinds: list[tuple[str, float, float | None, Kind]] = [
        *((world, 0.0, 0.30, Optimal) for world in WORLDS),
        *((world, 0.0, None, Sequential) for world in WORLDS),
        ("spread", 0.0, 0.30, Anytime),
        *(("spread", lead, 0.30, Optimal) for lead in LEADS),
    ]
    results = {kind: lives(pairs, *kind) for kind in kinds}
    ties = {
        (world, futility, rule.__name__): life for (world, lead, futility, rule), life in results.items() if not lead
    }
    ahead = {lead: life for (_, lead, _, _), life in results.items() if lead}
    rows, checks = list(_tie_rows(ties)), list(_checks(ties, ahead))
    seconds = time.perf_counter() - began
    raised = list(_raised_rows(10 if options.quick else 50))
    publish(options, _document(rows, list(_power_rows(ahead)), raised, checks, pairs, seconds), checks)


def lives(pairs: int, world: str, lead: float, futility: float | None, rule: Kind) -> Lives:
    """Independent pairs, all at once: the core's own estimates and rules, every model one trial a question a round."""
    rng = np.random.default_rng([SEED, list(WORLDS).index(world), round(1000 * lead)])
    p = rng.beta(*WORLDS[world], (pairs, QUESTIONS))
    better = p + (1.0 - p) * lead / np.maximum((1.0 - p).mean(axis=1, keepdims=True), lead)
    chances = np.stack([better, p], axis=1).reshape(2 * pairs, QUESTIONS)
    wins = np.cumsum(rng.random((HORIZONS[-1], *chances.shape)) < chances, axis=0, dtype=np.int32)
    at_once = _life(wins, HORIZONS[-1:], rule, futility)
    anew = np.zeros(pairs, np.int8)
    for horizon in HORIZONS:
        anew = np.where(anew == 0, _life(wins, (horizon,), rule, futility).call, anew)
    return Lives(_life(wins, HORIZONS, rule, futility), at_once, anew)


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


# -- the advice after a horizon --------------------------------------------------------------------------------------

MODELS = ("a", "b", "c", "d")
TIMES = (1.0, 2.0, 3.0)
LONGEST = 1000
"""Runs that would need more trials a question than this are no case for a raise."""


def _raised_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Whole runs of four models that end at their horizon; each goes on with so many times what the rest needs."""
    for delta in (0.0, 0.04):
        for horizon in (12, 24):
            settings = [f"stopping.delta={delta}", "trials.min=4", f"trials.max={horizon}", "trials.optimize=cost"]
            plan = plan_on(Bench(len(MODELS), QUESTIONS, WEIGHTS), load_decisions(None, settings, MODELS), MODELS)
            decided, further = Counter[float](), Counter[float]()
            for tape, ended, needed in islice(_short_runs(plan), runs):
                for times in TIMES:
                    longer = replace(plan.trials, max=math.ceil(times * needed))
                    before = StageBefore(ended, tuple(range(len(MODELS))))
                    again = _played(replace(plan, trials=longer, before=before), tape)
                    decided[times] += again.finished is Reason.SETTLED
                    further[times] += int(again.trials.sum() - ended.trials.sum())
            shares = [decided[times] / runs for times in TIMES]
            yield (
                f"{delta:.0%}",
                horizon,
                *(f"{share:.2f}" for share in shares),
                *(further[factor] // runs for factor in TIMES),
            )


def _short_runs(plan: Plan) -> Iterator[tuple[NDArray[np.bool_], Controller, float]]:
    """Runs that end at their horizon, with the trials a question that the undecided pairs need as they stand."""
    for seed in count():
        rng = np.random.default_rng([SEED, plan.trials.max, seed])
        logit = rng.normal(0.0, 0.6, (len(MODELS), 1)) - rng.normal(0.0, 1.5, QUESTIONS)
        tape = rng.random((3 * LONGEST, len(MODELS), QUESTIONS)) < 1.0 / (1.0 + np.exp(-logit))
        ended = _played(plan, tape)
        result = ended.result()
        assert result is not None
        needed = [
            pair.verdict.trials_needed for pair in result.comparisons if pair.verdict.verdict is Verdict.OUT_OF_REACH
        ]
        if ended.finished is Reason.OUT_OF_REACH and max(needed) <= LONGEST:
            yield tape, ended, max(float(plan.trials.max + 1), *needed)


def _played(plan: Plan, tape: NDArray[np.bool_]) -> Controller:
    controller = Controller(plan)
    while controller.finished is None:
        asked = controller.ask(64)
        controller.tell(
            [Outcome(*trial[:3], int(tape[trial.trial - 1, trial.model, trial.question])) for trial in asked]
        )
    return controller


def _error(rate: float, lives: int) -> float:
    return math.sqrt(max(rate * (1.0 - rate), 1e-6) / lives)


Ties = dict[tuple[str, float | None, str], Lives]


def _tie_rows(ties: Ties) -> Iterator[tuple[object, ...]]:
    for (world, futility, rule), life in ties.items():
        rates = [float(np.mean(call != 0)) for call in (life.extended.call, life.at_once.call, life.anew)]
        yield world, rule.lower(), "never" if futility is None else f"{futility:.2f}", *rates


def _power_rows(ahead: dict[float, Lives]) -> Iterator[tuple[object, ...]]:
    for lead, life in ahead.items():
        powers = [float(np.mean(fate.call == 1)) for fate in (life.extended, life.at_once)]
        yield f"{lead:.3f}", *powers, *(f"{fate.trials.mean():.1f}" for fate in (life.extended, life.at_once))


def _checks(ties: Ties, ahead: dict[float, Lives]) -> Iterator[Check]:
    for (world, futility, rule), life in ties.items():
        rate = float(np.mean(life.extended.call != 0))
        allowed = PROMISED + 2.0 * _error(PROMISED, len(life.anew))
        never = ", futility never" if futility is None else ""
        name = f"false winners, {world}, {rule.lower()}{never}, 8 -> 16 -> 32 -> 64"
        yield Check(name, round(rate, 4), f"<= 0.10 (Monte Carlo: {allowed:.3f})", rate <= allowed)
    for lead, life in ahead.items():
        share = float(np.sum(life.extended.call == 1) / max(np.sum(life.at_once.call == 1), 1))
        yield Check(f"power kept against a run begun with 64, true difference {lead:.3f}", round(share, 3), "", None)


def _document(
    ties: list[tuple[object, ...]],
    power: list[tuple[object, ...]],
    raised: list[tuple[object, ...]],
    checks: list[Check],
    pairs: int,
    seconds: float,
) -> str:
    return "\n\n".join(
        [
            "# Raising the horizon",
            "What `benchmarks/extension.py` prints. Two models on 30 questions; whoever sees no decision raises "
            "`trials.max`, 8 -> 16 -> 32 -> 64.",
            check_table(checks),
            f"## Exact ties: share of {pairs} runs that end with a winner",
            markdown(("world", "rule", "futility", "raised", "begun with 64", "all looks taken anew"), ties),
            f"## Power: share of {pairs} runs that find the better model, and trials a question",
            markdown(("true difference", "raised", "begun with 64", "trials, raised", "trials, begun with 64"), power),
            "A raised horizon spends what is left of the error, given what the looks have shown: pairs that came near "
            "a call keep most of it, pairs that looked equal very little. So the promise costs power, and it saves "
            "trials, since what can hardly be called any more is given up. Who expects to need 64 begins with 64.",
            "## Raised as far as the undecided pairs need, twice and three times as far: share that is decided then",
            markdown(
                (
                    "delta",
                    "trials.max",
                    *(f"x {factor:g}" for factor in TIMES),
                    *(f"trials, x {factor:g}" for factor in TIMES),
                ),
                raised,
            ),
            f"{machine()}; {seconds:.0f} s.",
        ]
    )


if __name__ == "__main__":
    main()
