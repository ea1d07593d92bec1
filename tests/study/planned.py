"""A small configuration to plan, and stored runs of it that need no server."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from stored_runs import store_records

from adaptive_eval.config.load import load_config
from adaptive_eval.config.planning import trial_cost
from adaptive_eval.config.prepare import PreparedRun, prepare
from adaptive_eval.core import Controller, Outcome
from adaptive_eval.core.tape import Tape
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.simulate.worlds import binary
from scorio.moments import FloatArray

MODELS = ("ada", "bob", "cyd")
HORIZON = 12
QUESTIONS = tuple(f"q{number}" for number in range(8))
PROMPT_TOKENS, CACHED_TOKENS, RIGHT_TOKENS, WRONG_TOKENS, LATENCY = 100, 80, 400, 900, 20.0
ANSWERS = {0: (WRONG_TOKENS, 2 * LATENCY), 1: (RIGHT_TOKENS, LATENCY)}
"""Completion tokens and seconds of a wrong and of a right answer."""


def chances(*means: float) -> FloatArray:
    """Chances (L, 8, 2) of models with these mean scores on questions of all difficulties."""
    spread = np.linspace(-0.2, 0.2, len(QUESTIONS))
    return binary(np.array([mean + spread for mean in means]))


WORLD = chances(0.75, 0.5, 0.25)


def write_config(folder: Path, name: str = "small", models: Sequence[str] = MODELS, **changes: object) -> Path:
    """Write a configuration of these models, with its questions beside it."""
    rows = [{"id": key, "prompt": f"What is {key}?", "answer": "1"} for key in QUESTIONS]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings: dict[str, object] = {
        "name": name,
        "questions": "questions.jsonl",
        "models": [
            {"name": model, "base_url": f"http://127.0.0.1:{port}/v1", "price": {"input": 1, "output": 4}, "gpus": 2}
            for port, model in enumerate(models, start=9)
        ],
        "sampling": {"temperature": 0.6, "max_tokens": 2000},
        "grader": "numeric",
        "trials": {"min": 4, "max": HORIZON},
        "concurrency": 8,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings | changes))
    return path


def prepared_from(path: Path, *overrides: str) -> PreparedRun:
    return prepare(load_config(path, overrides))


def store_run(
    prepared: PreparedRun,
    directory: Path,
    world: FloatArray = WORLD,
    seed: int = 0,
    rounds: int | None = None,
    tape: Tape | None = None,
) -> int:
    """Run to the end, or for this many rounds, and store it as `run` does; return the number of trials."""
    controller, weights = Controller(prepared.plan), prepared.plan.bench.weights
    tape = tape or Tape.from_chances(world, weights, np.random.default_rng(seed))
    trials = []
    while controller.finished is None and (rounds is None or len(controller.looks) < rounds):
        outcomes = [Outcome(*ask[:3], tape.at(*ask[:3])) for ask in controller.ask(1 << 20)]
        trials += [outcome_of(prepared, *outcome[:3], outcome.category or 0) for outcome in outcomes]
        controller.tell(outcomes)
    store_records(directory, prepared.header, trials, elapsed=60.0)
    return len(trials)


def outcome_of(prepared: PreparedRun, model: int, question: int, trial: int, category: int) -> TrialRecord:
    """A stored trial; wrong answers are longer."""
    tokens, latency = ANSWERS[category]
    used = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, "cached_tokens": CACHED_TOKENS}
    answer = Answer(f"{model} {question} {trial}", "stop", trial, "http://127.0.0.1:9/v1", latency, **used)
    cost = trial_cost(prepared.config.models[model])(answer)
    return TrialRecord(prepared.models[model], QUESTIONS[question], trial, 0, answer, category, cost=cost)
