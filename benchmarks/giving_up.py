"""The rule `optimal`, which computes calling and giving up together, beside the default and its setting of futility.

python benchmarks/giving_up.py [--quick] [--runs 200] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import replace
from typing import Any

import numpy as np
from scenarios import Scenario, recorded, simulated
from stacked import Ended, replay_stacked
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core.judge import Judging
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.settings import Pace, Trials

ROUNDS = {"stride": 0.0, "step": 2.0 / 80.0, "finest": 0.5 / 80.0}
"""As configured for rounds of one trial a question, up to 80."""
SETUPS: dict[str, dict[str, Any]] = {
    "default": {},
    "futility 0.45": {"judging": Judging(futility=0.45)},
    "optimal, worth 1.6": {"rule": Optimal(worth=1.6, **ROUNDS)},
    "optimal": {"rule": Optimal(**ROUNDS)},
    "optimal, worth 2.6": {"rule": Optimal(worth=2.6, **ROUNDS)},
}
TIES: dict[str, dict[str, Any]] = {
    "80 looks": {"rule": Optimal(**ROUNDS)},
    "growth 0.3": {"pace": Pace(growth=0.3), "rule": Optimal(stride=0.6, step=2.0 / 80.0, finest=0.5 / 80.0)},
    "5 looks": {
        "pace": Pace(growth=1.0), "trials": Trials(5, 80),
        "rule": Optimal(stride=2.0, step=2.0 / 80.0, finest=0.5 / 80.0, start=5.0 / 80.0),
    },
    "80 looks, worth 4": {"rule": Optimal(worth=4.0, **ROUNDS)},
    "80 looks, the default rule": {},
}  # fmt: skip
"""How rounds are spaced where two exact ties are played."""
ALIKE = ("80 looks", "growth 0.3", "5 looks")
PROMISE = 0.10
HEADER = (
    "set", "setup", "cost", "called", "misordered", "tie parted", "bias", "sd of errors", "sd, least", "sd, most",
)  # fmt: skip
EXPLAINED = """\
Cost is the share of the trials of the fixed design (every model, every question, N = 80). "Misordered" is the share
of runs in which a neighbour was called in the wrong order, "tie parted" that of runs in which exactly equal neighbours
were told apart, which is promised to happen to such a pair in at most 0.10 of runs. Bias is the largest of the models,
in points. "sd of errors" is the standard deviation of (score - truth)/sigma at the end over all models, then the least
and the most of a model."""


def main() -> None:
    parser = arguments("The rule `optimal` beside the default.")
    parser.add_argument("--runs", type=int, default=200)
    add_data(parser)
    options = parser.parse_args()
    runs = 20 if options.quick else options.runs
    sets = [simulated(name) for name in ("coins", "shared_difficulty", "rubric", "many_close")]
    if options.data.exists():
        sets.insert(0, recorded(options.data, "aime2024"))
    rows, checks = [], []
    for scenario in sets[:2] if options.quick else sets:
        found = [shown(replay_stacked(scenario, setup, runs, **choices)) for setup, choices in SETUPS.items()]
        rows += found
        checks += beside_the_default(found)
    for name, spacings in (("exact_ties", tuple(TIES)), ("near_deterministic", ALIKE), ("unequal_profiles", ALIKE)):
        world = simulated(name)
        for spaced in spacings:
            row = shown(replay_stacked(of_models(world, 2), f"two, {spaced}", 10 * runs, **TIES[spaced]))
            rows.append(row)
            checks.append(keeps_the_promise(row, 10 * runs))
    for models in (8, 12):
        rows.append(
            shown(
                replay_stacked(
                    of_models(simulated("exact_ties"), models), f"{models} models, optimal", runs, **SETUPS["optimal"]
                )
            )
        )
    text = "\n\n".join([
        "# Giving up: the rule `optimal` beside the default",
        EXPLAINED,
        f"{runs} seeded runs a row, ten times as many of two ties; lookahead 0. Machine: {machine()}.",
        check_table(checks),
        markdown(HEADER, [cells(row) for row in rows]),
    ])  # fmt: skip
    publish(options, text, checks)


def of_models(scenario: Scenario, models: int) -> Scenario:
    """So many of a world's models, spread over all of them."""
    world = scenario.world
    chosen = np.linspace(0, len(world.p) - 1, models).astype(int)
    return replace(scenario, world=replace(world, p=world.p[chosen], models=()))


def shown(row: Ended) -> Ended:
    """The row, which is printed for whoever waits."""
    print(row.scenario.name, *cells(row)[1:], flush=True)
    return row


def beside_the_default(found: list[Ended]) -> list[Check]:
    """What `optimal` costs where it calls as many: between the two worths around that, in proportion."""
    default, name = found[0], found[0].scenario.name
    optimal = sorted((float(row.called.mean()), row.cost) for row in found[2:])
    called = float(default.called.mean())
    cost = float(np.interp(called, [point[0] for point in optimal], [point[1] for point in optimal]))
    inside = optimal[0][0] <= called <= optimal[-1][0] + 0.05
    misordered = float(found[3].misordered.mean())
    return [
        Check(f"{name}: cost of as many calls, optimal over default", round(cost / default.cost, 3) if inside else "-",
              "reported", None),
        Check(f"{name}: runs with a misordered pair, optimal", round(misordered, 3), "<= 0.05", misordered <= 0.05),
    ]  # fmt: skip


def keeps_the_promise(row: Ended, runs: int) -> Check:
    """Whether ties are called as rarely as promised, within two standard errors."""
    rate = float(row.parted.mean())
    holds = rate <= PROMISE + 2.0 * float(np.sqrt(PROMISE * (1.0 - PROMISE) / runs))
    return Check(f"{row.scenario.name}: ties called, {row.setup}", round(rate, 4), f"<= {PROMISE} + 2 s.e.", holds)


def cells(row: Ended) -> tuple[object, ...]:
    """A row of the table."""
    each = row.standardised.std(axis=0)
    return (
        row.scenario.name, row.setup, row.cost, f"{row.called.mean():.2f}", float(row.misordered.mean()),
        float(row.parted.mean()), f"{row.bias:.2f}", float(row.standardised.std()), float(each.min()),
        float(each.max()),
    )  # fmt: skip


if __name__ == "__main__":
    main()
