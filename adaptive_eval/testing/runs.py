"""Small complete runs on made-up answers: in order, and in random order and batches, which must have the same looks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

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

MAX_ROUNDS = 10_000
SEEDS = 12
Case = TypeVar("Case")


def fail_unless(condition: bool, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


@contextmanager
def no_error(what: str, where: Callable[[], str]) -> Iterator[None]:
    """Convert any exception to an AssertionError with the values that caused it."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:  # any exception would end a run
        written = isinstance(error, ValueError) and "read-only" in str(error)
        does = "writes into what it is shown, which raises" if written else "raises"
        raise AssertionError(f"{what} {does} {error!r:.300} {where()}") from error


def with_arrays(case: Case, change: Callable[[Any], Any]) -> Case:
    """The evidence or the view with each of its arrays changed."""
    values = {field.name: getattr(case, field.name) for field in fields(case)}  # type: ignore[arg-type]
    arrays = {name: change(value) for name, value in values.items() if isinstance(value, np.ndarray)}
    return replace(case, **arrays)  # type: ignore[type-var]


def read_only(array: Any) -> Any:
    """A copy that cannot be written to."""
    array = array.copy()
    array.flags.writeable = False
    return array


def check_runs(
    what: str,
    objective: Objective | None = None,
    rule: Rule | None = None,
    policy: Policy | None = None,
    models: Sequence[int] = (2, 3, 4),
) -> None:
    """Check that runs with these parts end, and that looks do not depend on the order and batches of answers."""
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        plan = Plan(
            Bench(int(rng.choice(models)), int(rng.integers(1, 6)), np.array([0.0, 1.0])),
            objective=objective or Ranking(),
            rule=rule or Optimal(),
            policy=policy or Weighted(),
            judging=Judging(delta=float(rng.choice([0.0, 0.05]))),
            trials=Trials(min=2, max=int(rng.integers(2, 12))),
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
    for _ in range(MAX_ROUNDS):
        if controller.finished is not None:
            return controller
        requests = controller.ask(1 << 20 if rng is None else int(rng.integers(0, 20)))
        waiting += [Outcome(a.model, a.question, a.trial, _grade(seed, a.model, a.question, a.trial)) for a in requests]
        if rng is not None:
            waiting = [waiting[at] for at in rng.permutation(len(waiting))]
        count = len(waiting) if rng is None else int(rng.integers(0, 30))
        controller.tell(waiting[:count])
        del waiting[:count]
    raise AssertionError(f"{what} keeps a run of {plan.trials.max} trials a question from coming to its end")


def _grade(seed: int, model: int, question: int, trial: int) -> int:
    """A reproducible grade of a trial: 1 or 0."""
    chance = np.random.default_rng([seed, model, question, trial]).random()
    return int(chance < 0.2 + 0.2 * model)
