"""The rule `optimal`, which computes calling and giving up together, beside the default and its setting of futility.

python benchmarks/giving_up.py [--quick] [--runs 40] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from concurrent.futures import ProcessPoolExecutor
from typing import Any

from allocation import EXPLAINED, HEADER, Bench, upper
from scenarios import recorded, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core.judge import Judging
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.settings import Pace, Trials

STRIDE = 0.5
"""As configured: twice the largest round, of one trial a question beside the first four."""
SETUPS: dict[str, dict[str, Any]] = {
    "default": {},
    "futility 0.45": {"judging": Judging(futility=0.45)},
    "optimal": {"rule": Optimal(stride=STRIDE)},
}
TIES: dict[str, dict[str, Any]] = {
    "80 rounds": {},
    "growth 0.3": {"pace": Pace(growth=0.3)},
    "5 looks": {"pace": Pace(growth=1.0), "trials": Trials(5, 80)},
}
"""How rounds are spaced where exact ties are played."""


def main() -> None:
    parser = arguments("The rule `optimal` beside the default.")
    parser.add_argument("--runs", type=int, default=40)
    add_data(parser)
    options = parser.parse_args()
    runs = 6 if options.quick else options.runs
    sets = [simulated("coins")] + ([recorded(options.data, "aime2024")] if options.data.exists() else [])
    checks = []
    with ProcessPoolExecutor() as pool:
        bench = Bench(runs, pool)
        for scenario in sets:
            for setup, choices in SETUPS.items():
                row = bench.row(scenario, setup, **choices)
            wrong = row.share("wrong")
            checks.append(Check(f"{scenario.name}: runs with a wrong call, optimal", round(wrong, 3), "<= 0.05",
                                wrong <= 0.05))  # fmt: skip
            default = bench.rows[scenario.name, "default"]
            gain = row.mean("share") / default.mean("share")
            lost = default.mean("called") - row.mean("called")
            checks.append(Check(f"{scenario.name}: cost over the default's", round(gain, 3), "reported", None))
            checks.append(Check(f"{scenario.name}: pairs called fewer", round(lost, 2), "reported", None))
        for spaced, choices in TIES.items():
            rule = Optimal(stride=STRIDE if spaced == "80 rounds" else 2.0)
            row = bench.row(simulated("exact_ties"), f"optimal, {spaced}", rule=rule, **choices)
            rate = row.pair_rate("pairs_false", True)
            holds = upper(rate, 0.1, runs)
            checks.append(Check(f"exact ties called, optimal, {spaced}", round(rate, 4), "<= 0.1 + 2 s.e.", holds))
    text = "\n\n".join([
        "# Giving up: the rule `optimal` beside the default",
        EXPLAINED,
        f"{runs} seeded runs a row, lookahead 0. Machine: {machine()}.",
        check_table(checks),
        markdown(HEADER, [row.cells() for row in bench.rows.values()]),
    ])  # fmt: skip
    publish(options, text, checks)


if __name__ == "__main__":
    main()
