"""How often whole runs call exact ties: the figure that calibrates the rule `optimal`.

Some models of each world are copies of each other. A call between two copies that are neighbours in the final order is
a false one; at a confidence of 95%, 10% of them may be called, at 80%, 40%.

    python benchmarks/ties.py [--quick] [--runs 2000] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scenarios import Scenario, replay
from stacked import replay_stacked
from tables import Check, arguments, conclude, markdown

from adaptive_eval.core import Baseline, Optimal, Pace, Pairs, Trials
from adaptive_eval.simulate.worlds import World, binary
from scorio.moments import FloatArray

SPENT = (0.7, 0.95)
"""Goal for the highest rate of all worlds, as a share of what is allowed: the promise holds, and little of it is left
unspent."""
HEADER = ("questions", "models", "trials.max", "confidence", "ties called", "allowed", "setting")
ABOUT = """
How often are exact ties called? At most 10% may be at the default confidence of 95%, 40% at one of 80%. Runs of whole
worlds in which models are copies of each other. `python benchmarks/ties.py`.
"""

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
    trials = Trials(min=min_trials, max=case.cap)
    choices = dict(case.choices)
    rule = Optimal(case.confidence, trials.min / case.cap, choices.pop("worth", 3.0))
    plan = scenario.plan(rule=rule, trials=trials, **choices)
    if plan.source.by_question:
        return sum(replay(scenario, plan, seed).called for seed in range(runs)) / runs
    return replay_stacked(scenario, case.setting, runs, rule=rule, trials=trials, **choices).ties_called


def rows_of(runs: int, cases: Sequence[Case]) -> Iterator[tuple[Case, float]]:
    """Each case with its rate."""
    with ProcessPoolExecutor() as pool:
        yield from zip(cases, pool.map(partial(rate, runs=runs), cases), strict=True)


def cells(case: Case, share: float) -> tuple[object, ...]:
    """A row of the table."""
    alike = "all alike" if len(set(case.offsets)) == 1 else "two alike" if case in RIVALS else "pairs alike"
    return (
        f"{case.questions}, {case.profile}", f"{len(case.offsets)}, {alike}", case.cap, f"{case.confidence:.0%}",
        share, f"{case.allowed:.2f}", case.setting,
    )  # fmt: skip


def checks_of(results: Sequence[tuple[Case, float]]) -> Iterator[Check]:
    """At the default confidence the promise is to be spent; in all worlds, it must hold."""
    low, high = (share * CASES[0].allowed for share in SPENT)
    highest = max(rate for case, rate in results if case in CASES)
    yield Check("most ties called", round(highest, 3), f"{low:.3f} to {high:.3f}", low <= highest <= high)
    groups = {"where resting models go on": RIVALS, **{f"confidence {level:.0%}": of(level) for level in ELSEWHERE}}
    for name, cases in groups.items():
        rates = [rate for case, rate in results if case in cases]
        if rates:
            largest, allowed = max(rates), cases[0].allowed
            yield Check(f"most ties called, {name}", round(largest, 3), f"<= {allowed:.2f}", largest <= allowed)


def of(confidence: float) -> list[Case]:
    """The cases at another confidence."""
    return [case for case in OTHERS if case.confidence == confidence]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="seeded runs per row")
    options = parser.parse_args()
    runs = 60 if options.quick else options.runs
    results = list(rows_of(runs, CASES[:2] if options.quick else [*CASES, *RIVALS, *OTHERS]))
    table = markdown(HEADER, [cells(*result) for result in results])
    conclude(options, "Exact ties that are called", ABOUT, f"{runs} runs per row", table, list(checks_of(results)))


if __name__ == "__main__":
    main()
