"""What was tried to have as many calls for fewer trials, at the same promise and with the same score, and is not taken.

Each attempt changes one thing of runs under the rule `optimal`, and is played at several worths of a call; told is the
cost, between them in proportion, at the number of calls that the goals name ("-": not within them). "One of a pair"
asks of each open pair the model whose trials tell more, unless both tell nearly as much; "known looks" counts on looks
a round apart, as they mostly are, and not on the worst that they may be; "without EVENTS" has no further deviating
trials in its variances (`scorio/sinf/prior.py` says what they are for); "confidence 0.96" promises more.

    python benchmarks/attempts.py [--quick] [--runs 150] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from giving_up import GOALS, ROUNDS, cost_at
from scenarios import Scenario, recorded, simulated
from stacked import Ended, replay_stacked
from tables import Check, add_data, arguments, conclude, markdown

from adaptive_eval.core import policies, stack
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.policies import View, Weighted
from adaptive_eval.core.settings import Trials
from scorio.moments import FloatArray, IntArray
from scorio.sinf import optimal, prior

WORTHS = (1.4, 2.0, 2.4, 3.0)
ENOUGH = 0.6
"""Of what a trial of the other model would tell: one that tells less is not asked."""
KNOWN_LOOKS = {"stride": 0.0, "step": 1.0 / 80.0, "finest": 1.0 / 80.0}
HEADER = ("set", "attempt", "cost", "over as it is", "calls", "misordered", "tie parted", "any wrong", "sd of errors")


def one_of_a_pair(view: View, weights: FloatArray) -> IntArray:
    """Asks, of each open pair, who can still be asked and tells the more by a trial."""
    issued = np.maximum(view.issued, 1)
    tells = (view.trial_var / issued).sum(axis=1) / issued.sum(axis=1) * (view.sizes > 0)
    first, second = view.open_pairs[:, 0], view.open_pairs[:, 1]
    asked = np.zeros(len(tells), dtype=bool)
    for own, other in ((first, second), (second, first)):
        asked[own[tells[own] >= ENOUGH * tells[other]]] = True
    return policies._spread_all(view, asked & view.in_play, weights)


AS_IT_IS = "as it is"
ATTEMPTS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    AS_IT_IS: ({}, ()),
    "two trials before the first look": ({"trials": Trials(2, 80), "start": 2.0 / 80.0}, ()),
    "questions nearer to the others' weights": ({"policy": Weighted(0.1, 0.15)}, ()),
    "questions more alike": ({"policy": Weighted(0.4, 0.25)}, ()),
    "gaps expected to be smaller (sd 2)": ({}, (optimal, "PRIOR_SD", 2.0)),
    "gaps expected to be larger (sd 4.5)": ({}, (optimal, "PRIOR_SD", 4.5)),
    "one of a pair": ({}, (stack, "spread_over_open", one_of_a_pair)),
    "known looks": (KNOWN_LOOKS, ()),
    "confidence 0.96": ({"confidence": 0.96}, ()),
    "without EVENTS": ({}, (prior, "EVENTS", 0.0)),
}
"""By name: what is chosen, and what is changed in a module."""


@contextmanager
def changed(what: tuple[Any, ...]) -> Iterator[None]:
    """With that in the place of what the module has, and no boundaries kept from before."""
    optimal.optimal_stopping.cache_clear()
    with ExitStack() as undone:
        if what:
            undone.enter_context(patch.object(*what))
        yield
    optimal.optimal_stopping.cache_clear()


def played(scenario: Scenario, runs: int, name: str) -> list[Ended]:
    """One attempt at all worths."""
    choices, change = ATTEMPTS[name]
    rule = {key: choices.get(key, value) for key, value in {**ROUNDS, "start": 4.0 / 80.0, "confidence": 0.95}.items()}
    others = {key: value for key, value in choices.items() if key not in rule}
    with changed(change):
        return [replay_stacked(scenario, name, runs, rule=Optimal(worth=worth, **rule), **others) for worth in WORTHS]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=150)
    add_data(parser)
    options = parser.parse_args()
    runs = 20 if options.quick else options.runs
    sets = [simulated("coins")] + ([recorded(options.data, "aime2024")] if options.data.exists() else [])
    rows, checks = [], []
    for scenario in sets:
        called, goal = GOALS[scenario.name]
        costs: dict[str, float] = {}
        for name in ATTEMPTS:
            ended = played(scenario, runs, name)
            cost, all_errors = cost_at(ended, called), np.concatenate([one.standardised.ravel() for one in ended])
            if cost is not None:
                costs[name] = cost
            over = costs[name] / costs[AS_IT_IS] if {name, AS_IT_IS} <= costs.keys() else "-"
            rows.append((
                scenario.name, name, costs.get(name, "-"), over,
                " ".join(f"{one.called.mean():.2f}" for one in ended),
                float(np.mean([one.misordered.mean() for one in ended])),
                float(np.mean([one.parted.mean() for one in ended])), float(np.mean([one.wrong for one in ended])),
                float(all_errors.std()),
            ))  # fmt: skip
            print(*rows[-1], flush=True)
        for name, cost in sorted(costs.items(), key=lambda one: one[1])[:1]:
            said = f"{scenario.name}: least cost at {called:g} calls ({name})"
            checks.append(Check(said, round(cost, 3), f"<= {goal}", cost <= goal))
    conclude(options, "Attempts at fewer trials", __doc__.split("\n\n")[1], f"{runs} seeded runs a worth",
             markdown(HEADER, rows), checks)  # fmt: skip


if __name__ == "__main__":
    main()
