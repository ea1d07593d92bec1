"""Whole small runs on made-up answers: straight ahead, and told in another order, which must give the same looks; and
the same plug-in in another process: what goes by the order of a set of names, or by `hash`, differs there.

Python gives every process another seed for the hashes of texts, so that within one process nothing shows it. A run is
resumed in another process than it was begun in, and its graders work in several at once.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from adaptive_eval.core import (
    Bench,
    Controller,
    Judging,
    Objective,
    Optimal,
    Outcome,
    Pace,
    Plan,
    Policy,
    Rule,
    Trials,
    Verdict,
)
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.policies import Weighted

MOST_ROUNDS = 10_000
TRIES = 12


def fail_unless(holds: bool, said: str) -> None:
    """Raise AssertionError unless it holds."""
    if not holds:
        raise AssertionError(said)


@contextmanager
def no_error(what: str, where: Callable[[], str]) -> Iterator[None]:
    """Turn any exception into an AssertionError that names the values for which it was raised."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:  # whatever it is: it would end a run
        written = isinstance(error, ValueError) and "read-only" in str(error)
        does = "writes into what it is shown, which raises" if written else "raises"
        raise AssertionError(f"{what} {does} {error!r:.300} {where()}") from error


def check_runs(
    what: str,
    objective: Objective | None = None,
    rule: Rule | None = None,
    policy: Policy | None = None,
    models: Sequence[int] = (2, 3, 4),
) -> None:
    """Runs with these parts end, and have the same looks in whatever order and batches their answers come."""
    for seed in range(TRIES):
        rng = np.random.default_rng(seed)
        plan = Plan(
            Bench(int(rng.choice(models)), int(rng.integers(1, 6)), np.array([0.0, 1.0])),
            objective or Ranking(),
            rule or Optimal(),
            policy or Weighted(),
            judging=Judging(delta=float(rng.choice([0.0, 0.05]))),
            trials=Trials(2, int(rng.integers(2, 12))),
            pace=Pace(lookahead=int(rng.integers(0, 3))),
        )
        with no_error(what, lambda plan=plan: _described(plan)):  # type: ignore[misc]
            straight, shuffled = _run(plan, seed, None, what), _run(plan, seed, rng, what)
        fail_unless(
            repr(straight.looks) == repr(shuffled.looks),
            f"{what} makes the looks of a run depend on the order in which its answers come, so it remembers something",
        )
        last = straight.looks[-1] if straight.looks else None
        settled = straight.finished is not None and straight.finished == "settled"
        fail_unless(
            not settled or (last is not None and last.count(Verdict.OPEN) == 0),
            f"{what} lets a run end as settled with comparisons that are open",
        )


def _described(plan: Plan) -> str:
    sizes = f"{plan.bench.models} models, {plan.bench.questions} questions and {plan.trials.max} trials of each"
    return f"in a run of {sizes}, with lookahead {plan.pace.lookahead} and delta {plan.judging.delta:g}"


def _run(plan: Plan, seed: int, rng: np.random.Generator | None, what: str) -> Controller:
    controller, waiting = Controller(plan), list[Outcome]()
    for _ in range(MOST_ROUNDS):
        if controller.finished is not None:
            return controller
        asks = controller.ask(1 << 20 if rng is None else int(rng.integers(0, 20)))
        waiting += [Outcome(a.model, a.question, a.trial, _grade(seed, a.model, a.question, a.trial)) for a in asks]
        if rng is not None:
            waiting = [waiting[at] for at in rng.permutation(len(waiting))]
        count = len(waiting) if rng is None else int(rng.integers(0, 30))
        controller.tell(waiting[:count])
        del waiting[:count]
    raise AssertionError(f"{what} keeps a run of {plan.trials.max} trials a question from coming to its end")


def _grade(seed: int, model: int, question: int, trial: int) -> int:
    """Right or wrong, by its place alone."""
    chance = np.random.default_rng([seed, model, question, trial]).random()
    return int(chance < 0.2 + 0.2 * model)


ASKED = """
import pickle, sys
sys.path[:] = pickle.loads(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))
said, sys.stdout = sys.stdout, sys.stderr  # where a plug-in may print
probe, arguments = pickle.loads(sys.stdin.buffer.read())
said.buffer.write(probe(*arguments).encode("utf-8", "surrogatepass"))
"""
"""Code of the other process: its paths are those of this one before anything is loaded."""
SEEDS = ("1", "2")
THERE = "ADAPTIVE_EVAL_ELSEWHERE"
"""The variable that is set in the other process: a module that calls a suite when it is loaded begins no third one."""


def told_elsewhere(probe: Callable[..., str], arguments: tuple[Any, ...]) -> str | None:
    """What the function says in a process with other hashes.

    None for what cannot be sent there, such as a function within a function.
    """
    if THERE in os.environ:
        return None
    try:
        sent = pickle.dumps((probe, arguments))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    if b"__main__" in sent:  # a script of the author's would run once more
        return None
    return _probe_elsewhere(sent, next(seed for seed in SEEDS if seed != os.environ.get("PYTHONHASHSEED")))


def check_elsewhere(probe: Callable[..., str], arguments: tuple[Any, ...], name: str) -> None:
    """Raise AssertionError where the function says something else in a process with other hashes."""
    there = told_elsewhere(probe, arguments)
    if there is None:
        return
    here = probe(*arguments)
    at = next((at for at, (one, other) in enumerate(zip(here, there, strict=False)) if one != other), len(here))
    fail_unless(
        here == there,
        f"{name} gives something else in another process, {_around(there, at)} for {_around(here, at)}: it goes by the "
        "order of a set, or by `hash`, which differ from process to process; sort, or keep a list",
    )


def _around(text: str, at: int) -> str:
    return repr(text[max(at - 30, 0) : at + 30])


def _probe_elsewhere(sent: bytes, seed: str) -> str:
    paths = pickle.dumps(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        input=b"%d\n%b%b" % (len(paths), paths, sent),
        env={**os.environ, "PYTHONHASHSEED": seed, THERE: "1"},
        capture_output=True,
    )
    said = done.stderr.decode("utf-8", "replace").strip()[-300:]
    fail_unless(done.returncode == 0, f"what works here fails in another process: {said}")
    return done.stdout.decode("utf-8", "surrogatepass")
