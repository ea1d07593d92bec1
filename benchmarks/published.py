"""How often the published procedure names a winner between two copies of one model, beside the default.

    python benchmarks/published.py [--quick] [--runs 300] [--data PATH] [--json PATH]

The rule `published` judges z of Bayes@N > 1.645 anew at every look; its 95% is that of one look. Copies are compared
once at 80 trials, and after every round from 4 to 80. What each procedure spends on recorded sets is in `allocation`.
"""

import json
from collections.abc import Mapping

import numpy as np
from scenarios import CAP, recorded
from tables import Check, arguments, at_most, markdown, publish, with_errors

from adaptive_eval.config.load import load_decisions
from adaptive_eval.config.planning import plan_on
from adaptive_eval.core import Bench, Controller, Verdict
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate.worlds import BINARY, binary
from adaptive_eval.study.drive import drive_rounds
from scorio.moments import FloatArray

QUESTIONS = 30
RULE: Mapping[str, object] = {"rule": "published"}
TRIALS: Mapping[str, object] = {"policy": "unresolved_pairs", "optimize": "cost"}
ONE_LOOK = {"stopping": RULE, "trials": {**TRIALS, "min": CAP, "max": CAP}}
PUBLISHED = {"stopping": RULE, "trials": TRIALS}
DEFAULT = {"trials": {"optimize": "cost"}}


def winners(settings: Mapping[str, object], chances: FloatArray, runs: int) -> float:
    """The share of runs with these settings that name a winner between two models of the same chances (M,)."""
    names = ("model-0", "model-1")
    decisions = load_decisions(None, [f"{name}={json.dumps(section)}" for name, section in settings.items()], names)
    plan, named = plan_on(Bench(2, len(chances), BINARY), decisions, names), 0
    for seed in range(runs):
        tape = Tape.from_chances(binary(np.stack([chances, chances])), BINARY, np.random.default_rng(seed))
        look = drive_rounds(Controller(plan, keep_looks=False), tape).latest_look()
        named += look is not None and look.comparisons[0].verdict is Verdict.RESOLVED
    return named / runs


def main() -> None:
    options = arguments(__doc__, runs=300, quick_runs=20, data=True).parse_args()
    runs = options.runs
    worlds = {"fair coins": np.full(QUESTIONS, 0.5), "coins of 0.9": np.full(QUESTIONS, 0.9)}
    if options.data.is_dir():
        chances = recorded(options.data, "aime2024").world.p[:, :, 1]
        worlds |= {f"AIME'24, place {place + 1}": chances[place] for place in ((0, 11) if options.quick else range(12))}
    procedures = (ONE_LOOK, PUBLISHED, DEFAULT)
    ties = {name: [winners(settings, world, runs) for settings in procedures] for name, world in worlds.items()}
    once, published, default = np.mean(list(ties.values()), axis=0).tolist()
    most = max(row[-1] for row in ties.values())
    checks = [
        Check("ties called, published, one look at 80", round(once, 3), "0.10 by its z"),
        Check("ties called, published, a look after every round", round(published, 3), "no promise"),
        at_most("ties called, default", default, 0.10),
        at_most("the most of any two copies, default", most, with_errors(0.10, runs, 3.0)),
    ]
    head = ("two copies of", "published, one look", "published, every round", "default")
    table = markdown(head, [(name, *tie) for name, tie in ties.items()])
    publish(options, "The published procedure", f"{runs} runs for each two copies.", table, checks=checks)


if __name__ == "__main__":
    main()
