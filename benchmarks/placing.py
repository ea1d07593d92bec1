"""One new model among twelve recorded ones: what it costs beside a ranking of all, and whether it is placed rightly.

Each seed leaves out another of the thirteen best models of a recorded set (or of the eleven coins, two of which are
equal), ranks the others adaptively, records what that run has, and places the one that was left out. Three ways to
record are tried, since a run that ends by what it sees may leave scores that are off: all rounds of the adaptive run,
its opening alone, and a run with the same number of trials for everyone.

    python benchmarks/placing.py [--quick] [--runs 130] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import Scenario, recorded, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Bench, Controller, Plan, Trials
from adaptive_eval.core.objectives import Place
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.tape import Tape
from adaptive_eval.study.drive import drive

LEAST = 4
WAYS = ("all rounds", "opening alone", "equal N")
EXPLAINED = """\
"Trials" are those of the new model, in the trials of a fresh adaptive ranking of all; "of its own maximum" the same in
its own horizon. A placing is right where no call against any recorded model is wrong, so that the range of places that
the calls leave holds the true one; "width" is how many places that range has. "Tie called" is the share of runs, of
those that place one of the two equal coins, in which it is told apart from the other."""
HEADER = (
    "set",
    "recorded",
    "runs",
    "trials",
    "of its own maximum",
    "placed rightly",
    "width",
    "tie called",
)


class Placed(NamedTuple):
    """What one placing came to."""

    share: float
    """Of the new model's maximum."""
    wrong: int
    width: int
    tie: float
    """1 where an exact tie was called, 0 where it was not, nan where there is none."""


@dataclass(frozen=True)
class Cell:
    """One way to record on one set, over seeded runs."""

    scenario: str
    way: str
    runs: tuple[Placed, ...]
    fresh: float
    """Trials of a fresh ranking of all, in the maximum of one model."""

    @property
    def cost(self) -> float:
        return float(np.mean([run.share for run in self.runs])) / self.fresh

    @property
    def right(self) -> float:
        return float(np.mean([run.wrong == 0 for run in self.runs]))

    def cells(self) -> tuple[object, ...]:
        ties = [run.tie for run in self.runs if np.isfinite(run.tie)]
        return (
            self.scenario, self.way, len(self.runs), self.cost, float(np.mean([run.share for run in self.runs])),
            self.right, f"{np.mean([run.width for run in self.runs]):.1f}",
            f"{np.mean(ties):.3f} of {len(ties)}" if ties else "",
        )  # fmt: skip


class Without:
    """A tape without one of its models."""

    def __init__(self, tape: Tape, kept: list[int]) -> None:
        self._tape, self._kept = tape, kept

    def category(self, model: int, question: int, trial: int) -> int:
        return self._tape.category(self._kept[model], question, trial)


def plan(scenario: Scenario, bench: Bench) -> Plan:
    most = scenario.cap
    return Plan(bench, rule=Sequential(0.95, min(LEAST / most, 1.0)), trials=Trials(LEAST, most))


def earlier(scenario: Scenario, tape: Tape, kept: list[int], way: str) -> NDArray[np.int64]:
    """(L - 1, M, 2): what the earlier run has of the others."""
    bench = Bench(len(kept), scenario.world.p.shape[1], scenario.world.w)
    if way == "all rounds":
        return drive(Controller(plan(scenario, bench)), Without(tape, kept)).counts.astype(np.int64)  # type: ignore[arg-type]
    trials = LEAST if way == "opening alone" else scenario.cap
    counts = np.zeros((bench.models, bench.questions, 2), dtype=np.int64)
    for row, model in enumerate(kept):
        for question in range(bench.questions):
            for trial in range(trials):
                counts[row, question, tape.category(model, question, trial)] += 1
    return counts


def place(scenario: Scenario, way: str, seed: int) -> Placed:
    """One seeded placing."""
    truth, tape = scenario.world.truth, scenario.tape(seed)
    models, questions, _ = scenario.world.p.shape
    new = seed % models
    kept = [model for model in range(models) if model != new]
    counts = np.zeros((models, questions, 2), dtype=np.int64)
    counts[kept] = earlier(scenario, tape, kept, way)
    bench = Bench(models, questions, scenario.world.w, prior_counts=counts, recorded=frozenset(kept))
    placing = replace(plan(scenario, bench), objective=Place(frozenset(kept)))
    controller = drive(Controller(placing), tape)
    standing = controller.standing
    assert standing is not None
    evidence, call = standing.evidence, standing.memory.call
    mine = (evidence.first == new) | (evidence.second == new)
    ahead = np.sign(np.round(truth[evidence.first] - truth[evidence.second], 12))
    wrong, tied = mine & (call != 0) & (call != ahead), mine & (ahead == 0)
    return Placed(
        share=float(controller.trials.sum()) / (questions * scenario.cap),
        wrong=int(wrong.sum()),
        width=1 + int((mine & (call == 0)).sum()),
        tie=float((call[tied] != 0).any()) if tied.any() else np.nan,
    )


def fresh_cost(scenario: Scenario, seed: int) -> float:
    """Trials of an adaptive ranking of everyone, in the maximum of one model."""
    models, questions, _ = scenario.world.p.shape
    controller = drive(Controller(plan(scenario, Bench(models, questions, scenario.world.w))), scenario.tape(seed))
    return float(controller.trials.sum() / (questions * scenario.cap))


def scenarios(folder: Path) -> Iterator[Scenario]:
    yield simulated("coins")
    if folder.is_dir():
        yield recorded(folder, "aime2024", 13)


def measure(scenario: Scenario, runs: int, pool: ProcessPoolExecutor) -> list[Cell]:
    fresh = float(np.mean(list(pool.map(partial(fresh_cost, scenario), range(max(runs // 5, 4))))))
    cells = []
    for way in WAYS:
        cells.append(Cell(scenario.name, way, tuple(pool.map(partial(place, scenario, way), range(runs))), fresh))
        print(*cells[-1].cells(), flush=True)
    return cells


def main() -> None:
    parser = arguments(__doc__ or "")
    add_data(parser)
    parser.add_argument("--runs", type=int, default=130, help="placings of each kind")
    options = parser.parse_args()
    runs = 13 if options.quick else options.runs
    with ProcessPoolExecutor() as pool:
        cells = [cell for scenario in scenarios(options.data) for cell in measure(scenario, runs, pool)]
    checks = []
    for cell in cells:
        if cell.way == "all rounds":
            slack = 2.0 * float(np.sqrt(0.95 * 0.05 / runs))
            checks += [
                Check(
                    f"{cell.scenario}: trials over a fresh ranking", round(cell.cost, 3), "<= 0.08", cell.cost <= 0.08
                ),
                Check(f"{cell.scenario}: placed rightly", cell.right, ">= 0.95 - 2 s.e.", cell.right >= 0.95 - slack),
            ]
    text = "\n\n".join(
        [
            "# One new model among recorded ones",
            f"`python benchmarks/placing.py --runs {runs}` on {machine()}.",
            check_table(checks),
            markdown(HEADER, [cell.cells() for cell in cells]),
            EXPLAINED,
        ]
    )
    publish(options, text, checks)


if __name__ == "__main__":
    main()
