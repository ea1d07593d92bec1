"""Large benchmarks: whether a ranking may begin before every question has a trial of every model.

Today every question has `trials.min` trials of every model before the first look. With scores as in weights.py a round
may draw a tenth of the questions: those that earlier rounds and the other models leave most uncertain more often, and
what was not drawn stands in the score by its prediction. Of the 20 best models of the recorded LiveCodeBench (400
questions, 10 trials; the recorded shares are the truth), measured are the trials until half of the decidable pairs of
neighbours are called. Decidable is a gap that one look at all 10 trials would more likely than not show. Misordered
are pairs of any two models, a run; the promise is for each of them.

The second table has the same by the controller, at its defaults, with a first look after one trial of each question,
and where what is most likely to be settled comes first (`allocation: soonest`), here and on other sets. Four of the
ten pairs are so far apart that less than a trial of each question would do, and the fifth needs six: most of the trials
until half are called are those that other models get meanwhile, and order is what saves them.

The third says why neither a first look after one trial nor questions drawn at random (drawn.py) gets far on this set.
What neighbours differ by varies more from question to question than answers do on a question: so some of the questions
say little of the others, and all of them must be asked. And most questions are right always or never, but others for
each model: questions weighted by a model's own variances would need a seventh of the trials, weighted by those of the
other models they need about as many as without; and own weights bias scores, which the rounds of 0.1 above pay for.

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
from weights import OPENING, Play, Verdicts

from adaptive_eval.core import Controller, Plan, Sequential, Trials
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.policies import Soonest, Weighted, question_weights
from adaptive_eval.core.tape import Tape
from adaptive_eval.study.drive import DrawnRound
from scorio.sinf.optimal import optimal_stopping

BEST, HORIZON = 20, 10
WORTH, Z = 2.0, 1.645
SIZES = (1.0, 0.1)
LEAST_CALLED = 0.5
"""Trials a question before anything is called or given up in rounds of less than one: sigmas are wild before."""
GOAL = 0.40
BY_CONTROLLER = (
    "set", "rule", "served first", "first look after", "until half are called", "at the end", "called", "looks", "bias",
    "misordered pairs",
)  # fmt: skip
WORTH_WEIGHING = (
    "set", "models", "variance between over within questions", "trials, own weights", "trials, weights of the others",
)  # fmt: skip
HEADER = (
    "trials a question of a round", "first look that counts", "until half are called", "at the end", "called",
    "pairs misordered", "bias", "sd of errors",
)  # fmt: skip
FloatArray = NDArray[np.float64]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=24)
    add_data(parser)
    options = parser.parse_args()
    if not options.data.exists():
        sys.exit(f"{options.data} has no recorded outcomes; name their folder by --data")
    scenario = recorded(options.data, "livecodebench", best=BEST, cap=HORIZON)
    p = scenario.world.p @ scenario.world.w
    rows, half = [], {}
    for size in SIZES:
        row, half[size] = measured(p, 4 if options.quick else options.runs, size)
        rows.append(row)
        print(*row, flush=True)
    played = [(setup, by_controller(setup, options.data, 4 if options.quick else options.runs)) for setup in CONTROLLED]
    checks = [
        Check(f"trials until half are called, rounds of {size:g} over today's", round(half[size] / half[1.0], 3),
              f"<= {GOAL}", half[size] <= GOAL * half[1.0])
        for size in half if size < 1.0
    ]  # fmt: skip
    today = played[0][1].half
    for setup, found in played[1:]:
        if setup.name == played[0][0].name and setup.soonest:
            ratio = found.half / today
            words = f"by the controller, {setup.rule}, {setup.least} of each, the likeliest first, over its defaults"
            checks.append(Check(words, round(ratio, 3), f"<= {GOAL}", ratio <= GOAL))
    sets = (("livecodebench", BEST, HORIZON), ("livecodebench", 12, HORIZON), ("aime2024", 12, 80))
    weights = [worth_weighing(recorded(options.data, name, best=best, cap=cap)) for name, best, cap in sets]
    tables = (
        markdown(HEADER, rows),
        markdown(BY_CONTROLLER, [row_of(*one) for one in played]),
        markdown(WORTH_WEIGHING, weights),
    )
    conclude(options, "Large benchmarks", "\n\n".join(__doc__.split("\n\n")[1:4]), f"{options.runs} seeded runs a row",
             "\n\n".join(tables), checks)  # fmt: skip


def measured(p: FloatArray, runs: int, size: float) -> tuple[tuple[object, ...], float]:
    """A row of the table, and the trials until half are called."""
    models, questions = p.shape
    play, verdicts = Play(p, runs, size < 1.0, np.random.default_rng(7), size), Verdicts(runs, models)
    start = (OPENING if size >= 1.0 else LEAST_CALLED) / HORIZON
    rule = optimal_stopping(0.1, start * (1.0 - 1e-9), WORTH, 0.0, 2.0 * size / HORIZON, 0.5 * size / HORIZON)
    first, truth, pairs = round(start * HORIZON * p.size), p.mean(axis=1), decidable(p)
    reached = np.full(runs, np.inf)
    while True:
        going = verdicts.look(play, rule, HORIZON)
        called = (verdicts.call[:, pairs[:, 0], pairs[:, 1]] == 1).mean(axis=1)
        used = play.trials.sum(axis=(1, 2))
        reached = np.where((called >= 0.5) & np.isinf(reached), used, reached)
        if not going.any():
            break
        play.ask(going)
    score, variance = play.estimates()
    errors, sign = score - truth, np.sign(truth[:, None] - truth)
    half = float(np.median(reached))
    return (
        f"{size:g}", first, f"{half:.0f}", f"{used.mean():.0f}", f"{called.mean():.2f} of {len(pairs)}",
        f"{((verdicts.call == 1) & (sign < 1.0)).sum() / runs:.2f} of {models * (models - 1) // 2}",
        f"{100.0 * np.abs(errors.mean(axis=0)).max():.2f}", float((errors / np.sqrt(variance)).std()),
    ), half  # fmt: skip


class Setup(NamedTuple):
    """A set, and what the controller is told."""

    name: str
    best: int
    horizon: int
    least: int
    rule: str = "sequential"
    soonest: bool = False

    def scenario(self, data: Path) -> Scenario:
        if self.name == "coins":
            return simulated(self.name)
        return recorded(data, self.name, best=self.best, cap=self.horizon)

    def plan(self, scenario: Scenario) -> Plan:
        start, step = self.least / self.horizon, 1.0 / self.horizon
        optimal = self.rule == "optimal"
        return scenario.plan(
            trials=Trials(self.least, self.horizon),
            rule=Optimal(0.95, start, WORTH, 0.0, 2.0 * step, 0.5 * step) if optimal else Sequential(start=start),
            policy=Soonest() if self.soonest else Weighted(),
        )


CONTROLLED = (
    Setup("livecodebench", BEST, HORIZON, 4),
    Setup("livecodebench", BEST, HORIZON, 1),
    Setup("livecodebench", BEST, HORIZON, 1, soonest=True),
    Setup("livecodebench", BEST, HORIZON, 4, "optimal"),
    Setup("livecodebench", BEST, HORIZON, 1, "optimal"),
    Setup("livecodebench", BEST, HORIZON, 1, "optimal", soonest=True),
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
        tape, reached, right, seen = Tape.of_chances(scenario.world.p, w, np.random.default_rng(seed)), np.inf, 0.0, 0
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
        setup.name, setup.rule, "the likeliest" if setup.soonest else "all that are open", f"{setup.least} of each",
        f"{found.half:.0f}", f"{found.end:.0f}", f"{found.called:.2f} of {found.pairs}", f"{found.looks:.0f}",
        f"{found.bias:.2f}", f"{found.misordered:.2f}",
    )  # fmt: skip


def worth_weighing(scenario: Scenario) -> tuple[object, ...]:
    """How far neighbours' differences vary between questions, and what the best weights would save."""
    p = scenario.world.p @ scenario.world.w
    v = p * (1.0 - p)
    order = np.argsort(-p.mean(axis=1), kind="stable")
    above, below = p[order[:-1]], p[order[1:]]
    between = (above - below).var(axis=1).mean()
    within = (v[order[:-1]] + v[order[1:]]).mean()
    own = float((np.sqrt(v).mean(axis=1) ** 2 / v.mean(axis=1)).mean())
    weights = question_weights(v, 0.25, 0.25)
    others = float(((v / weights).mean(axis=1) / v.mean(axis=1)).mean())
    return scenario.name, len(p), f"{between / within:.2f}", f"{own:.2f}", f"{others:.2f}"


def decidable(p: FloatArray, horizon: int = HORIZON) -> NDArray[np.intp]:
    """(n, 2): the true neighbours, the better one first."""
    order = np.argsort(-p.mean(axis=1), kind="stable")
    noise = (p * (1.0 - p)).sum(axis=1) / p.shape[1] ** 2 / horizon
    pairs = np.stack([order[:-1], order[1:]], axis=1)
    gaps = p.mean(axis=1)[pairs[:, 0]] - p.mean(axis=1)[pairs[:, 1]]
    return np.asarray(pairs[gaps >= Z * np.sqrt(noise[pairs].sum(axis=1))])


if __name__ == "__main__":
    main()
