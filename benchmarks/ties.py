"""How often whole runs call exact ties: the figure that calibrates the rule `optimal`.

Some models of each world are copies of each other. A call between two copies that are neighbours in the final order is
a false one; at a confidence of 95%, 10% of them may be called, at 80%, 40%.

    python benchmarks/ties.py [--quick] [--runs 2000] [--json PATH]
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from replays import replay_all
from scenarios import Scenario, replay
from tables import Check, arguments, at_most, between, markdown, publish

from adaptive_eval.core import Baseline, Optimal, Pace, Pairs, Trials
from adaptive_eval.simulate.worlds import World, binary
from scorio.moments import FloatArray

SPENT = (0.7, 0.95)
"""Goal for the highest rate of all worlds, as a share of what is allowed: the promise holds, and little of it is left
unspent."""
HEADER = ("questions", "models", "trials.max", "confidence", "ties called", "allowed", "setting")

Choices = tuple[tuple[str, Any], ...]


class Case(NamedTuple):
    """One world, and how it is run."""

    profile: str
    questions: int
    cap: int
    offsets: tuple[float, ...]
    """Of each model, in log-odds; equal ones are copies."""
    setting: str = ""
    choices: Choices = ()
    confidence: float = 0.95
    min_trials: int | None = None
    """Trials before the first look; None: the default."""

    @property
    def allowed(self) -> float:
        """The share of exact ties that may be called."""
        return 2.0 * (1.0 - self.confidence)


PAIR, FIVE = (0.0,) * 2, (0.0,) * 5
AGAINST_FIRST: Choices = (("objective", Baseline(0)),)
TWO_AGAINST_SIX: Choices = (
    ("objective", Pairs(((0, 1), *((first, second) for second in range(2, 8) for first in (0, 1))))),
)
CASES = [
    Case("spread", 30, 80, PAIR),
    Case("alike, 0.5", 30, 80, PAIR),
    Case("alike, 0.9", 30, 80, PAIR),
    Case("near-deterministic", 30, 80, PAIR),
    Case("alike, 0.5", 30, 8, PAIR),
    Case("alike, 0.5", 500, 8, PAIR),
    Case("alike, 0.5", 30, 80, PAIR, "trials.min: 40", min_trials=40),
    Case("alike, 0.5", 30, 80, PAIR, "trials.min: 60", min_trials=60),
    Case("spread", 10, 200, PAIR),
    Case("alike, 0.5", 1000, 1, PAIR),
    Case("alike, 0.9", 1000, 1, PAIR),
    Case("spread", 1000, 1, PAIR),
    Case("alike, 0.5", 1000, 2, PAIR, "trials.min: 1", min_trials=1),
    Case("alike, 0.5", 30, 10, PAIR),
    Case("alike, 0.5", 200, 10, PAIR),
    Case("alike, 0.5", 30, 80, PAIR, "worth: 1", (("worth", 1.0),)),
    Case("alike, 0.5", 30, 80, PAIR, "worth: 10", (("worth", 10.0),)),
    Case("alike, 0.5", 30, 80, PAIR, "three rounds ahead", (("pace", Pace(3)),)),
    Case("alike, 0.5", 30, 80, (0.0,) * 8),
    Case("spread", 30, 80, (-0.3, 0.0, 0.0, 0.3)),
    Case("alike, 0.5", 30, 80, (0.0, 0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3)),
    Case("alike, 0.5", 30, 40, (-0.15, 0.0, 0.0, 0.15)),
    Case("alike, 0.5", 30, 80, FIVE, "objective: baseline", AGAINST_FIRST),
]
RIVALS = [
    Case("alike, 0.5", 30, 80, (0.0, 0.0, 0.05, -0.05, 0.1, -0.1, 0.15, -0.15), "both against six", TWO_AGAINST_SIX)
]
"""A pair that rests goes on all the same, since both of its models are in open pairs with others."""
ELSEWHERE = (0.80, 0.90, 0.99)
OTHERS = [
    Case("alike, 0.5", 30, 80, models, setting, choices, confidence)
    for confidence in ELSEWHERE
    for models, setting, choices in (
        (PAIR, "", ()),
        (PAIR, "worth: 10", (("worth", 10.0),)),
        (PAIR, "three rounds ahead", (("pace", Pace(3)),)),
        (FIVE, "objective: baseline", AGAINST_FIRST),
    )
]
"""At other confidences, where the highest rates were seen at 95%."""


def success(profile: str, questions: int) -> FloatArray:
    """The chance of each question that a model at offset 0 is right."""
    rng = np.random.default_rng(8)
    match profile:
        case "spread":
            return rng.beta(0.6, 0.4, questions)
        case "near-deterministic":
            return np.where(rng.random(questions) < 0.5, 0.02, 0.98)
        case _:
            return np.full(questions, float(profile.removeprefix("alike, ")))


def scenario_of(case: Case) -> Scenario:
    """The world of a case."""
    easy = np.clip(success(case.profile, case.questions), 1e-6, 1.0 - 1e-6)
    odds = np.log(easy / (1.0 - easy)) + np.array(case.offsets)[:, None]
    return Scenario(case.profile, World(case.profile, binary(1.0 / (1.0 + np.exp(-odds)))), None, case.cap)


def rate(case: Case, runs: int) -> float:
    """The share of comparisons of copies that were called; all that end next to each other count."""
    scenario = scenario_of(case)
    min_trials = min(scenario.trials.min, case.cap) if case.min_trials is None else case.min_trials
    choices, trials = dict(case.choices), Trials(min=min_trials, max=case.cap)
    choices |= {"rule": Optimal(case.confidence, min_trials / case.cap, choices.pop("worth", 3.0)), "trials": trials}
    plan = scenario.plan(**choices)
    if plan.source.by_question:
        return sum(replay(scenario, plan, seed).called for seed in range(runs)) / runs
    return replay_all(scenario, runs, **choices).ties_called


def cells(case: Case, share: float) -> tuple[object, ...]:
    """A row of the table."""
    alike = "all alike" if len(set(case.offsets)) == 1 else "two alike" if case in RIVALS else "pairs alike"
    models, confidence = f"{len(case.offsets)}, {alike}", f"{case.confidence:.0%}"
    return f"{case.questions}, {case.profile}", models, case.cap, confidence, share, f"{case.allowed:.2f}", case.setting


def checks_of(rates: Mapping[Case, float]) -> Iterator[Check]:
    """At the default confidence the promise is to be spent; in all worlds, it must hold."""
    low, high = (share * CASES[0].allowed for share in SPENT)
    yield between("most ties called", max(rate for case, rate in rates.items() if case in CASES), low, high)
    groups = {"where resting models go on": RIVALS}
    groups |= {f"confidence {level:.0%}": [case for case in OTHERS if case.confidence == level] for level in ELSEWHERE}
    for name, cases in groups.items():
        if measured := [rates[case] for case in cases if case in rates]:
            yield at_most(f"most ties called, {name}", max(measured), cases[0].allowed)


def main() -> None:
    options = arguments(__doc__, runs=2000, quick_runs=60).parse_args()
    cases = CASES[:2] if options.quick else [*CASES, *RIVALS, *OTHERS]
    with ProcessPoolExecutor() as pool:
        rates = dict(zip(cases, pool.map(partial(rate, runs=options.runs), cases), strict=True))
    table, about = markdown(HEADER, [cells(*result) for result in rates.items()]), f"{options.runs} runs per row."
    publish(options, "Exact ties that are called", __doc__, about, table, checks=list(checks_of(rates)))


if __name__ == "__main__":
    main()
