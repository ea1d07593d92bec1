"""What picking the best model costs, and how far the pick is behind the best: objective `best` under two rules.

A unit is one trial on all questions of a model. Regret is the true score of the best model minus that of the model
that is picked, in points. Each row also has the regret of a fixed design of the same size, which spreads the same
units evenly over the models and picks the highest mean.

    python benchmarks/best.py [--quick] [--runs 200] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from scenarios import RECORDED_CAPS, Scenario, paced, recorded, simulated
from tables import Check, add_data, arguments, machine, markdown, publish

from adaptive_eval.core import Best, Controller, ExpectedLoss, Rule
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.fixed import first_outcomes

RULES: dict[str, Rule | None] = {"expected_loss": ExpectedLoss(), "optimal": None}
MAX_UNITS, MAX_REGRET = 120.0, 0.30
"""Goals for `expected_loss` on AIME'24, the second in points."""
HEADER = ("set", "rule", "units", "of all", "regret", "regret, fixed design of this size", "undecided")
EXPLAINED = """\
Picking the best model with `objective: best`. *Units*: trials on all questions of a model, over all models. *Of all*:
their share of the trials allowed. *Regret*: how many points the picked model's true score is behind the best one's, in
the mean. *Undecided*: runs that end without a decision against some model, though they have a leader."""


class Picked(NamedTuple):
    """How one replay ended."""

    units: float
    regret: float
    fixed_regret: float
    undecided: bool


def pick(job: tuple[Scenario, str, int]) -> Picked:
    """One seeded replay, and the fixed design of its size."""
    scenario, name, seed = job
    models, questions, _ = scenario.world.p.shape
    choices = {**paced(scenario, "answers"), "objective": Best()}
    if (rule := RULES[name]) is not None:
        choices["rule"] = rule
    controller = Controller(scenario.plan(**choices))
    drive_rounds(controller, scenario.tape(seed))
    result, truth = controller.result(), scenario.world.truth
    assert result is not None
    units = float(controller.arrived.sum()) / questions
    fixed = highest_mean(scenario, max(round(units / models), 1), seed)
    regret, fixed_regret = (float(truth.max() - truth[model]) * 100.0 for model in (result.models[0].model, fixed))
    return Picked(units, regret, fixed_regret, str(result.reason) != "settled")


def highest_mean(scenario: Scenario, trials: int, seed: int) -> int:
    """The model with the highest mean after this many trials per question."""
    models, questions, _ = scenario.world.p.shape
    worth = scenario.world.w[first_outcomes(scenario.tape(seed), models, questions, trials)]
    return int(worth.mean(axis=(1, 2)).argmax())


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    add_data(parser)
    parser.add_argument("--runs", type=int, default=200, help="seeded runs per row")
    options = parser.parse_args()
    runs = 8 if options.quick else options.runs
    sets = [simulated(name) for name in ("coins", "shared_difficulty", "many_close")]
    if options.data.is_dir():
        sets += [recorded(options.data, name) for name in RECORDED_CAPS]
    rows, checks = list[tuple[object, ...]](), list[Check]()
    with ProcessPoolExecutor() as pool:
        for scenario in sets[:1] if options.quick else sets:
            for name in RULES:
                jobs = [(scenario, name, seed) for seed in range(runs)]
                units, regret, fixed, undecided = np.mean(list(pool.map(pick, jobs, chunksize=4)), axis=0)
                whole = scenario.world.p.shape[0] * scenario.cap
                rows.append((
                    scenario.name, name, f"{units:.0f}", f"{units / whole:.2f}", f"{regret:.2f}", f"{fixed:.2f}",
                    f"{undecided:.0%}",
                ))  # fmt: skip
                print(*rows[-1], flush=True)
                if (scenario.name, name) == ("aime2024", "expected_loss"):
                    checks.append(Check("aime2024: units", round(units, 1), f"<= {MAX_UNITS:g}", units <= MAX_UNITS))
                    met = regret <= MAX_REGRET
                    checks.append(Check("aime2024: regret, points", round(regret, 2), f"<= {MAX_REGRET:g}", met))
    about = f"{runs} seeded runs per row. Machine: {machine()}."
    publish(options, "\n\n".join(("# Picking the best", EXPLAINED, about, markdown(HEADER, rows))), checks)


if __name__ == "__main__":
    main()
