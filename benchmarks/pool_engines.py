"""A pool on real servers: six tiny models that share two places, beside a fixed number of trials on the same places.

    python benchmarks/pool_engines.py [--quick] [--json PATH] [--markdown PATH]

Six models, 30 questions, 80 trials a question at most, llama-server on CPUs; `tests/engines/run` installs it. A server
that has no place is stopped, and started when its model's turn comes. The runs take turns with the fixed design, which
asks every model 80 trials of each question and looks once. One run is killed with SIGKILL while a server takes the
place of another, and started again; what it is held against is the run before it.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tables import Check, arguments, conclude, markdown

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "tests" / "engines")]

from engine_pool import FIXED, PLACES, SIX, killed_in_a_swap, pooled, released_before_the_end  # noqa: E402
from engine_runs import Finished, Workplace, true_score  # noqa: E402
from family import weights  # noqa: E402

PAIRS = 3
HEADER = ("run", "trials", "server time, s", "wall, s", "swaps", "released early", "pairs called", "order is true")


class Row(NamedTuple):
    """What came of one run."""

    name: str
    trials: int
    held: float
    wall: float
    swaps: int
    released: int
    called: int
    right: bool

    def cells(self) -> tuple[object, ...]:
        seconds = (f"{self.held:.1f}", f"{self.wall:.1f}")
        right = "yes" if self.right else "**no**"
        return (self.name, self.trials, *seconds, self.swaps, self.released, self.called, right)


def row_of(name: str, run: Finished) -> Row:
    """Server time is from when a server is ready until it is stopped."""
    models = run.results["models"]
    truth = sorted(SIX, key=lambda one: -true_score(weights(one)).exact)
    return Row(
        name=name,
        trials=sum(row["trials"] for row in models),
        held=sum(row["server_seconds"] for row in models),
        wall=float(run.results["run"]["active_seconds"]),
        swaps=sum(turns["swaps"] for turns in run.results["turns"]),
        released=released_before_the_end(run),
        called=sum(pair["verdict"] == "resolved" for pair in run.results["pairs"]),
        right=run.order == truth,
    )


def measured(pairs: int) -> tuple[list[Row], Finished, Finished]:
    """Fixed and adaptive runs in turn, and one that is killed in a swap; gives the last two runs, too."""
    rows = []
    for number in range(pairs):
        with tempfile.TemporaryDirectory() as folder:
            workplace = Workplace.make(Path(folder))
            rows.append(row_of("fixed N", workplace.run(pooled(workplace, "fixed", seed=number, **FIXED))))
            print(rows[-1], file=sys.stderr, flush=True)
            whole = workplace.run(pooled(workplace, "adaptive", seed=number))
            rows.append(row_of("adaptive", whole))
            print(rows[-1], file=sys.stderr, flush=True)
            if number == pairs - 1:
                config = pooled(workplace, "killed", seed=number)
                killed_in_a_swap(workplace, config)
                killed = workplace.run(config)
                rows.append(row_of("killed in a swap, and resumed", killed))
    return rows, whole, killed


def checks(rows: list[Row], whole: Finished, killed: Finished) -> list[Check]:
    """Ratios to the fixed design, and whether a kill changes anything."""
    by_name = {name: [row for row in rows if row.name == name] for name in ("fixed N", "adaptive")}
    fixed, adaptive = by_name["fixed N"], by_name["adaptive"]
    ratios = {
        "server time": fmean(row.held for row in adaptive) / fmean(row.held for row in fixed),
        "wall time": fmean(row.wall for row in adaptive) / fmean(row.wall for row in fixed),
        "trials": fmean(row.trials for row in adaptive) / fmean(row.trials for row in fixed),
    }
    goals = {"server time": 0.75, "wall time": 0.80, "trials": None}
    found = [
        Check(f"{name}, beside fixed N", round(value, 3), *_held_to(value, goals[name]))
        for name, value in ratios.items()
    ]
    called = min(row.called for row in adaptive) - max(row.called for row in fixed)
    found.append(Check("pairs called, beside fixed N", called, ">= 0", called >= 0))
    ways = [(run.order, run.tiers, [pair["verdict"] for pair in run.results["pairs"]]) for run in (killed, whole)]
    same = ways[0] == ways[1]
    found.append(Check("killed and resumed: ranking and verdicts", "same" if same else "other", "same", same))
    answers = sum(killed.outcomes.get(key) == one for key, one in whole.outcomes.items())
    kept = f"{answers} of {len(whole.outcomes)}"
    found.append(Check("killed and resumed: answers that are the same", kept, "", None))
    return found


def _held_to(value: float, goal: float | None) -> tuple[str, bool | None]:
    return ("", None) if goal is None else (f"<= {goal:g}", value <= goal)


def main() -> None:
    options = arguments("A pool on real servers.").parse_args()
    begun = time.perf_counter()
    rows, whole, killed = measured(1 if options.quick else PAIRS)
    took = f"{len(PLACES)} places, {(time.perf_counter() - begun) / 60:.0f} minutes"
    about = (__doc__ or "").partition("PATH]\n")[2]
    table = markdown(HEADER, [row.cells() for row in rows])
    conclude(options, "A pool on real servers", about, took, table, checks(rows, whole, killed))


if __name__ == "__main__":
    main()
