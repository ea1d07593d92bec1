"""Whole runs with `trials.seeds: coupled`: what near copies are compared for, what is called wrongly, what others pay.

The outcomes are those of tiny trained models (`coupling`): a model and its copies with rounded weights, asked with the
same seeds. A run draws each trial from these with all models' answers to it; "own seeds" draws each model's apart.
Equal models are made of a model and its copy by giving each answer of a trial to one or the other by chance.

    python benchmarks/coupled_runs.py [--quick] [--models FOLDER] [--drawn PATH] [--json PATH] [--markdown PATH]

Drawing the answers takes longer than the runs: `--drawn` keeps them, or takes those that were kept.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from coupling import load, outcomes, questions, rounded
from numpy.typing import NDArray
from tables import Check, arguments, conclude, markdown

from adaptive_eval.core import Baseline, Bench, Controller, Outcome, Plan, Trials
from adaptive_eval.core.objectives import Gate
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Margin
from adaptive_eval.core.types import Verdict

Outcomes = NDArray[np.uint8]
QUESTIONS = len(questions())
BENCH = Bench(2, QUESTIONS, weights=np.array([0.0, 1.0]))
TEMPERATURE = 0.7
DEPTH = 4
"""Times the horizon: weighted questions may have more than it."""
DELTA = 0.02
GOAL, MOST_CALLED, MOST_WRONG = 0.2, 0.10, 0.05
HEADER = ("models", "asked for", "seeds", "trials", "over own seeds", "decided", "wrongly", "intervals that cover")
EXPLAINED = """\
Trials of a run on average, of both models; "over own seeds": in those of the same runs with `seeds: hashed` (same
settings, questions weighted). "Coupled, shared": the models draw with the same random numbers; "coupled, own": they do
not, and `trials.seeds: coupled` is set all the same. Gates ask whether the copy is less than two points worse than the
original, with at most 400 trials a question; equal models, of which a call is wrong whichever it is, with at most 80.
A 95% interval of the difference is taken where a run ended."""


class Found(NamedTuple):
    """Of one run."""

    trials: int
    decided: bool
    wrong: bool
    covers: bool


def drawn(pool: Outcomes, cap: int, shared: bool, equal: bool, rng: np.random.Generator) -> Outcomes:
    """Outcomes (2, M, N) of a run, from those (2, M, n) of the pool."""
    shape, question = (QUESTIONS, DEPTH * cap), np.arange(QUESTIONS)[:, None]
    trials = [rng.integers(0, pool.shape[2], shape) for _ in range(2)]
    if shared:
        trials[1] = trials[0]
    if not equal:
        return np.stack([pool[model][question, trials[model]] for model in (0, 1)])
    which = rng.integers(0, 2, (2, *shape))
    if shared:
        which[1] = 1 - which[0]
    return np.stack([pool[which[model], question, trials[model]] for model in (0, 1)])


def carried_out(plan: Plan, pool: Outcomes, shared: bool, equal: bool, seed: int) -> Found:
    """A whole run."""
    table = drawn(pool, plan.trials.max, shared, equal, np.random.default_rng(seed))
    controller = Controller(plan, keep_looks=False)
    while controller.finished is None:
        trials = controller.ask(10**6)
        controller.tell(Outcome(a.model, a.question, a.trial, int(table[a.model, a.question, a.trial])) for a in trials)
    standing, look = controller.last_look, controller.latest_look()
    assert standing is not None and look is not None
    (pair,), evidence = look.comparisons, standing.evidence
    given = plan.objective.margin.delta if plan.objective.margin else 0.0
    truth = 0.0 if equal else float(np.subtract(*pool.mean(axis=(1, 2))))
    at = int(evidence.positions(np.array([[1, 0]]))[0])
    sign = 1.0 if evidence.first[at] == 1 else -1.0
    lead = sign * float(evidence.difference[at]) - given
    decided = pair.verdict is Verdict.RESOLVED
    true_sign = np.sign(given - truth)
    wrong = decided and (equal or (1 if pair.first == 1 else -1) != true_sign)
    return Found(int(controller.trials.sum()), decided, bool(wrong), abs(lead + truth) <= 1.96 * evidence.sigma[at])


def rows(name: str, pool: Outcomes, runs: int, equal: bool) -> Iterator[tuple[str, str, list[Found]]]:
    """The same runs with seeds of their own, coupled, and coupled where nothing is shared."""
    trials, objective = (
        (Trials(min=4, max=80), Baseline(0)) if equal else (Trials(min=4, max=400), Gate(Margin(0, DELTA)))
    )
    plan = Plan(BENCH, objective=objective, rule=Sequential(start=trials.min / trials.max), trials=trials)
    for seeds, coupled, shared in (
        ("own", False, False),
        ("coupled, shared", True, True),
        ("coupled, own", True, False),
    ):
        chosen = replace(plan, coupled=coupled)
        yield name, seeds, [carried_out(chosen, pool, shared, equal, seed) for seed in range(runs)]


def share(runs: Sequence[Found], what: str) -> float:
    """Of the runs."""
    return float(np.mean([getattr(run, what) for run in runs]))


def pools_of(folder: Path, answers: int, drawn: Path | None) -> dict[str, Outcomes]:
    """So many answers (M, n) of the original and of each copy, with the same seeds."""
    if drawn is not None and drawn.is_file():
        with np.load(drawn) as arrays:
            pools = {name: arrays[name] for name in arrays.files}
        if all(pool.shape == (QUESTIONS, answers) for pool in pools.values()):
            return pools
    original = load(folder / "calc-1000")
    models = {"original": original} | {f"int{bits}": rounded(original, bits) for bits in (8, 6, 4)}
    pools = {
        name: np.array([list(row.values()) for row in outcomes(model, answers, 0, TEMPERATURE).values()], np.uint8)
        for name, model in models.items()
    }
    if drawn is not None:
        np.savez(drawn, **pools)
    return pools


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    default = Path(__file__).parents[2] / "shared" / "engine"
    parser.add_argument("--models", type=Path, default=default, help="the folder of the trained models")
    parser.add_argument("--drawn", type=Path, help="where the models' answers are kept, or were by an earlier call")
    options = parser.parse_args()
    answers, gates, ties = (12, 2, 6) if options.quick else (100, 40, 100)
    folder = options.models / "models_b"
    if not folder.is_dir():
        parser.error(f"{folder} is not there; --models names the folder of the trained models")
    pools = pools_of(folder, answers, options.drawn)
    table, checks = [], []
    for equal, runs in ((False, gates), (True, ties)):
        for copy in list(pools)[1:]:
            pool = np.stack([pools["original"], pools[copy]])
            gap = 100.0 * float(np.subtract(*pool.mean(axis=(1, 2))))
            label = f"original and {copy}" + ("" if equal else f", {gap:.1f} points apart")
            cost = 1.0
            for name, seeds, results in rows(label, pool, runs, equal):
                trials = share(results, "trials")
                cost = trials if seeds == "own" else cost
                ratio, decided, wrong = trials / cost, share(results, "decided"), share(results, "wrong")
                asked = "equal models" if equal else "a gate"
                shown = (f"{trials:,.0f}", f"{ratio:.2f}", f"{decided:.1%}", f"{wrong:.1%}")
                table.append((name, asked, seeds, *shown, f"{share(results, 'covers'):.1%}"))
                print(*table[-1], flush=True)
                check = f"{name}, {asked}, {seeds}"
                if equal:
                    checks.append(Check(f"{check}: called", round(decided, 3), "<= 0.1", decided <= MOST_CALLED))
                else:
                    checks.append(Check(f"{check}: wrong", round(wrong, 3), "<= 0.05", wrong <= MOST_WRONG))
                if not equal and copy == "int8" and seeds == "coupled, shared":
                    checks.append(Check(f"{check}: trials", round(ratio, 2), f"<= {GOAL}", ratio <= GOAL))
                if seeds == "coupled, own":
                    near = 0.95 <= ratio <= 1.05
                    checks.append(Check(f"{check}: trials over own seeds", round(ratio, 2), "0.95 to 1.05", near))
    title = "Whole runs with the same seeds for near copies"
    size = f"{answers} trials a question of each model, {gates} runs of a gate, {ties} of equal models"
    conclude(options, title, EXPLAINED, size, markdown(HEADER, table), checks)


if __name__ == "__main__":
    main()
