"""Evaluations by Inspect itself, with mock models that are right with a known chance."""

import random
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai import Task
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver

from adaptive_eval.exchange.inspect.adapter import AdaptiveStopping

Fails = Callable[[str, str | int, int], bool]
SECONDS = 120.0


def mock_model(name: str, skill: float) -> Model:
    """A model that says 42 with this chance, and 41 otherwise."""
    chance = random.Random(name)

    def answer(*arguments: Any) -> ModelOutput:
        output = ModelOutput.from_content(name, "42" if chance.random() < skill else "41")
        output.usage = ModelUsage(input_tokens=10, output_tokens=1, total_tokens=11)
        return output

    return get_model(name, custom_outputs=answer, memoize=False)


@solver
def failing(fails: Fails) -> Solver:
    """Ends in an error where it is told to."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if fails(str(state.model), state.sample_id, state.epoch):
            raise ConnectionResetError("reset by peer")
        return state

    return solve


def evaluate(
    manager: AdaptiveStopping,
    skills: Mapping[str, float],
    folder: Path,
    *,
    questions: int = 4,
    epochs: int = 12,
    fails: Fails | None = None,
    **options: Any,
) -> dict[str, EvalLog]:
    """The logs by model; fails where the evaluation has not ended after `SECONDS`."""
    task = Task(
        dataset=[Sample(id=number + 1, input=f"{number} of 6 * 7?", target="42") for number in range(questions)],
        solver=[*([] if fails is None else [failing(fails)]), generate()],
        scorer=options.pop("scorer", match()),
        epochs=epochs,
        early_stopping=manager,
    )
    settings: dict[str, Any] = {"display": "none", "log_dir": str(folder), "log_realtime": False} | options
    models = [mock_model(name, skill) for name, skill in skills.items()]
    found: list[EvalLog] = []
    run = partial(inspect_ai.eval, task, model=models, **settings)
    thread = threading.Thread(target=lambda: found.extend(run()), daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "the evaluation hangs"
    return {log.eval.model: log for log in found}
