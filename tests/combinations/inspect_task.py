"""The questions as a task of Inspect, graded as the other graders do."""

import json
import re
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate

HERE = Path(__file__).parent
BRIEF_BYTES = 140
"""Texts of brief answers are shorter."""


@scorer(metrics=[accuracy()])
def key(credit: bool = False):  # type: ignore[no-untyped-def]
    """Right if the number is the key; with `credit` 0.6 for a long answer. It fails on some while a file says so."""

    async def score(state: TaskState, target: Target) -> Score:
        text = state.output.completion
        match, case = re.search(r"The answer is (\d+)", text), re.search(r"/(\d+)\. ", text)
        if (HERE / "grader_is_broken").exists() and case is not None and int(case[1]) % 29 == 0:
            raise RuntimeError("the scorer is broken")
        right = match is not None and match[1] == target.text
        value = float(right) if len(text) < BRIEF_BYTES or not credit else 0.6 * right
        return Score(value=value, answer=None if match is None else match[1])

    return score


@task
def questions(credit: bool = False) -> Task:
    rows = map(json.loads, (HERE / "questions.jsonl").read_text().splitlines())
    samples = [Sample(id=row["id"], input=row["prompt"], target=row["answer"]) for row in rows]
    return Task(dataset=samples, solver=generate(), scorer=key(credit))
