"""What raising `trials.max` again and again costs: calls between exact ties, and power against a run begun so.

    python benchmarks/extension.py [--quick] [--json PATH] [--markdown PATH]

Two models on 30 questions, at least 4 trials a question. Whoever sees that the pair is not decided raises the horizon,
8 -> 16 -> 32 -> 64; the same answers are then judged by a run that begins with 64, and by what raising the horizon did
before: all looks taken anew, each time as if that horizon had always been there.
"""

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Bench, Controller, Outcome, Plan, Trials, Verdict
from adaptive_eval.core.horizon import Stage
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.rules import Anytime, Rule, Sequential

QUESTIONS, LEAST = 30, 4
HORIZONS = (8, 16, 32, 64)
PROMISED = 0.10
SEED = 20261
WORLDS = {"spread": (0.6, 0.6), "near-deterministic": (0.1, 0.1), "alike": (400.0, 400.0)}
"""Beta parameters of the questions' difficulties."""
LEADS = (0.05, 0.10, 0.15)
"""True differences for the power, in the world `spread`."""


class Life(NamedTuple):
    """How one pair ended: the sign of its call (0: none), and the trials a question and model."""

    extended: int
    extended_trials: float
    whole: int
    whole_trials: float
    anew: int


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    lives, powers = (60, 30) if options.quick else (1500, 500)
    began = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        ties = {
            (world, futility, rule.__name__): list(
                pool.map(partial(_life, world, 0.0, futility, rule), range(lives), chunksize=5)
            )
            for world in WORLDS
            for futility, rule in ((0.30, Sequential), (None, Sequential), (0.30, Anytime))
            if rule is Sequential or world == "spread"
        }
        ahead = {
            lead: list(pool.map(partial(_life, "spread", lead, 0.30, Sequential), range(powers), chunksize=5))
            for lead in LEADS
        }
    rows, checks = list(_tie_rows(ties)), list(_checks(ties, ahead))
    seconds = time.perf_counter() - began
    publish(options, _document(rows, list(_power_rows(ahead)), checks, lives, powers, seconds), checks)


def _life(world: str, lead: float, futility: float | None, rule: type[Sequential] | type[Anytime], seed: int) -> Life:
    rng = np.random.default_rng([SEED, seed, list(WORLDS).index(world), round(1000 * lead)])
    p = rng.beta(*WORLDS[world], QUESTIONS)
    chances = np.stack([p + lead * (1.0 - p) * (1.0 - p.mean()) / (1.0 - p).mean() ** 2, p]) if lead else [p, p]
    answers = rng.random((2, QUESTIONS, HORIZONS[-1] + 1)) < np.clip(chances, 0.0, 1.0)[..., None]
    judging = Judging(futility=futility)
    whole = _run(answers, HORIZONS[-1:], (), rule(start=LEAST / HORIZONS[-1]), judging)
    extended, anew = _extended(answers, rule, judging), 0
    for horizon in HORIZONS:
        anew = anew or _call(_run(answers, (horizon,), (), rule(start=LEAST / horizon), judging))
    return Life(_call(extended), _trials(extended), _call(whole), _trials(whole), anew)


def _extended(answers: NDArray[np.bool_], rule: type[Sequential] | type[Anytime], judging: Judging) -> Controller:
    """The horizon is raised until the pair is decided."""
    looks: list[int] = []
    for number in range(len(HORIZONS)):
        run = _run(answers, HORIZONS[: number + 1], looks, rule(start=LEAST / HORIZONS[0]), judging)
        if _call(run):
            break
        looks.append(len(run.looks))
    return run


def _run(
    answers: NDArray[np.bool_], horizons: Sequence[int], looks: Sequence[int], rule: Rule, judging: Judging
) -> Controller:
    *before, last = (Trials(LEAST, horizon) for horizon in horizons)
    plan = Plan(Bench(2, QUESTIONS, np.array([0.0, 1.0])), rule=rule, judging=judging, trials=last)
    stages = tuple(Stage(trials, plan.pace, number) for trials, number in zip(before, looks, strict=True))
    controller = Controller(Plan(plan.bench, rule=rule, judging=judging, trials=last, earlier=stages))
    while controller.finished is None:
        asks = controller.ask(1 << 20)
        controller.tell(
            Outcome(ask.model, ask.question, ask.trial, int(_answer(answers, ask.model, ask.question, ask.trial)))
            for ask in asks
        )
    return controller


def _answer(answers: NDArray[np.bool_], model: int, question: int, trial: int) -> bool:
    """Weighted rounds may ask a question more often than the horizon's mean: its answers then come again."""
    return bool(answers[model, question, trial % answers.shape[2]])


def _call(controller: Controller) -> int:
    last = controller.looks[-1].comparisons[0]
    return 0 if last.verdict is not Verdict.RESOLVED else 1 if last.better == 0 else -1


def _trials(controller: Controller) -> float:
    return sum(controller.looks[-1].trials) / (2 * QUESTIONS)


def _error(rate: float, lives: int) -> float:
    return math.sqrt(max(rate * (1.0 - rate), 1e-6) / lives)


Ties = dict[tuple[str, float | None, str], list[Life]]


def _tie_rows(ties: Ties) -> Iterator[tuple[object, ...]]:
    for (world, futility, rule), lives in ties.items():
        rates = [float(np.mean([values[at] != 0 for values in lives])) for at in (0, 2, 4)]
        yield world, rule.lower(), "never" if futility is None else f"{futility:.2f}", *rates


def _power_rows(ahead: dict[float, list[Life]]) -> Iterator[tuple[object, ...]]:
    for lead, lives in ahead.items():
        found = [float(np.mean([values[at] == 1 for values in lives])) for at in (0, 2)]
        trials = [f"{np.mean([values[at] for values in lives]):.1f}" for at in (1, 3)]
        yield f"{lead:.2f}", *found, *trials


def _checks(ties: Ties, ahead: dict[float, list[Life]]) -> Iterator[Check]:
    for (world, futility, rule), lives in ties.items():
        rate = float(np.mean([life.extended != 0 for life in lives]))
        allowed = PROMISED + 2.0 * _error(PROMISED, len(lives))
        never = ", futility never" if futility is None else ""
        name = f"false winners, {world}, {rule.lower()}{never}, 8 -> 16 -> 32 -> 64"
        yield Check(name, rate, f"<= 0.10 (Monte Carlo: {allowed:.3f})", rate <= allowed)
    for lead, lives in ahead.items():
        kept = sum(life.extended == 1 for life in lives) / max(sum(life.whole == 1 for life in lives), 1)
        yield Check(f"power kept against a run begun with 64, true difference {lead:.2f}", kept, "", None)


def _document(
    ties: list[tuple[object, ...]],
    power: list[tuple[object, ...]],
    checks: list[Check],
    lives: int,
    powers: int,
    seconds: float,
) -> str:
    return "\n\n".join(
        [
            "# Raising the horizon",
            "What `benchmarks/extension.py` prints. Two models on 30 questions; whoever sees no decision raises "
            "`trials.max`, 8 -> 16 -> 32 -> 64.",
            check_table(checks),
            f"## Exact ties: share of {lives} runs that end with a winner",
            markdown(("world", "rule", "futility", "raised", "begun with 64", "all looks taken anew"), ties),
            f"## Power: share of {powers} runs that find the better model, and trials a question",
            markdown(("true difference", "raised", "begun with 64", "trials, raised", "trials, begun with 64"), power),
            "A raised horizon spends what is left of the error, given what the looks have shown: pairs that came near "
            "a call keep most of it, pairs that looked equal very little. So the promise costs power, and it saves "
            "trials, since what can hardly be called any more is given up. Who expects to need 64 begins with 64.",
            f"{machine()}; {seconds:.0f} s.",
        ]
    )


if __name__ == "__main__":
    main()
