"""How soon half of what can be called is called, where what is most likely to be settled comes first.

Of the 20 best models of the recorded LiveCodeBench (400 questions, 10 trials) and of other sets, the recorded shares
being the truth, measured are the trials until half of the decidable pairs of neighbours are called: at the defaults,
with a first look after one trial of each question, and with `policy: soonest`. Decidable is a gap that one look at
all trials would more likely than not show. Misordered are pairs of any two models, a run; the promise is for each.

    python benchmarks/large.py [--quick] [--runs 24] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import Scenario, recorded, simulated
from tables import Check, add_data, arguments, conclude, markdown

from adaptive_eval.core import Controller, Plan, Trials
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.policies import Soonest, Weighted
from adaptive_eval.core.tape import Tape
from adaptive_eval.study.drive import DrawnRound

BEST, HORIZON = 20, 10
Z = 1.645
GOAL = 0.40
HEADER = (
    "set", "served first", "first look after", "until half are called", "at the end", "called", "looks", "bias",
    "misordered pairs",
)  # fmt: skip
FloatArray = NDArray[np.float64]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=24)
    add_data(parser)
    options = parser.parse_args()
    if not options.data.exists():
        sys.exit(f"{options.data} has no recorded outcomes; name their folder by --data")
    runs = 4 if options.quick else options.runs
    played = []
    for setup in SETUPS[:3] if options.quick else SETUPS:
        played.append((setup, by_controller(setup, options.data, runs)))
        print(*row_of(*played[-1]), flush=True)
    today = played[0][1].half
    checks = []
    for setup, found in played[1:3]:
        first = "the likeliest first" if setup.soonest else "all that are open"
        words = f"{setup.name}: until half are called, {setup.least} of each, {first}, over the defaults"
        checks.append(Check(words, round(found.half / today, 3), f"<= {GOAL}", found.half <= GOAL * today))
    table = markdown(HEADER, [row_of(*one) for one in played])
    conclude(options, "What is called first", __doc__.split("\n\n")[1], f"{runs} seeded runs a row", table, checks)


class Setup(NamedTuple):
    """A set, and what the controller is told."""

    name: str
    best: int
    horizon: int
    least: int
    soonest: bool = False

    def scenario(self, data: Path) -> Scenario:
        if self.name == "coins":
            return simulated(self.name)
        return recorded(data, self.name, best=self.best, cap=self.horizon)

    def plan(self, scenario: Scenario) -> Plan:
        start = self.least / self.horizon
        return scenario.plan(
            trials=Trials(self.least, self.horizon),
            rule=Optimal(start=start),
            policy=Soonest() if self.soonest else Weighted(),
        )


SETUPS = (
    Setup("livecodebench", BEST, HORIZON, 4),
    Setup("livecodebench", BEST, HORIZON, 1),
    Setup("livecodebench", BEST, HORIZON, 1, soonest=True),
    *(Setup("gpqa", 12, 10, 1, soonest=soonest) for soonest in (False, True)),
    *(Setup("aime2024", 12, 80, 4, soonest=soonest) for soonest in (False, True)),
    *(Setup("coins", 11, 80, 4, soonest=soonest) for soonest in (False, True)),
)


class Played(NamedTuple):
    """What came of the runs of a setup, in the mean but for `half`."""

    half: float
    """The median of trials until half of the decidable pairs were called."""
    end: float
    called: float
    pairs: int
    looks: float
    bias: float
    misordered: float


def by_controller(setup: Setup, data: Path, runs: int) -> Played:
    """Whole runs of the controller, trials drawn with the recorded shares."""
    scenario = setup.scenario(data)
    p, w = scenario.world.p @ scenario.world.w, scenario.world.w
    pairs, plan, truth = decidable(p, setup.horizon), setup.plan(scenario), p.mean(axis=1)
    half, ends, called, looks, misordered, errors = [], [], [], [], [], []
    for seed in range(runs):
        controller = Controller(plan, keep_looks=False)
        tape, reached, right, seen = Tape.from_chances(scenario.world.p, w, np.random.default_rng(seed)), np.inf, 0.0, 0
        while controller.finished is None:
            for asked in controller.ask_rounds():
                controller.tell_round(asked, DrawnRound.of(asked, tape, len(w)).counts)
            standing, seen = controller.standing, seen + 1
            assert standing is not None
            evidence, call = standing.evidence, standing.memory.call
            at = evidence.positions(pairs)
            right = float((np.where(evidence.first[at] == pairs[:, 0], 1, -1) * call[at] == 1).mean())
            reached = min(reached, float(controller.trials.sum())) if right >= 0.5 else reached
        assert standing is not None
        ahead = np.sign(np.round(truth[evidence.first] - truth[evidence.second], 12))
        half.append(reached)
        ends.append(float(controller.trials.sum()))
        called.append(right)
        looks.append(seen)
        misordered.append(((call != 0) & (call == -ahead)).sum())
        errors.append(standing.estimates.score - truth)
    bias = 100.0 * float(np.abs(np.mean(errors, axis=0)).max())
    end, share, seen_of_all, wrong = (float(np.mean(each)) for each in (ends, called, looks, misordered))
    return Played(float(np.median(half)), end, share, len(pairs), seen_of_all, bias, wrong)


def row_of(setup: Setup, found: Played) -> tuple[object, ...]:
    return (
        setup.name, "the likeliest" if setup.soonest else "all that are open", f"{setup.least} of each",
        f"{found.half:.0f}", f"{found.end:.0f}", f"{found.called:.2f} of {found.pairs}", f"{found.looks:.0f}",
        f"{found.bias:.2f}", f"{found.misordered:.2f}",
    )  # fmt: skip


def decidable(p: FloatArray, horizon: int = HORIZON) -> NDArray[np.intp]:
    """(n, 2): the true neighbours, the better one first."""
    order = np.argsort(-p.mean(axis=1), kind="stable")
    noise = (p * (1.0 - p)).sum(axis=1) / p.shape[1] ** 2 / horizon
    pairs = np.stack([order[:-1], order[1:]], axis=1)
    gaps = p.mean(axis=1)[pairs[:, 0]] - p.mean(axis=1)[pairs[:, 1]]
    return np.asarray(pairs[gaps >= Z * np.sqrt(noise[pairs].sum(axis=1))])


if __name__ == "__main__":
    main()
