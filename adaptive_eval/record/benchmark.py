"""What makes two runs runs of one benchmark: the same questions with the same answer keys, put to models in the same
way (`prompt`, where a model has none of its own), under the same rubric."""

import hashlib
import json
from collections.abc import Sequence
from typing import Protocol

from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.questions.types import Question

NAMELESS = frozenset({"questions", "question", "test", "data", "dataset", "train", "items"})
"""Names of files that say nothing of what is asked."""


class Askable(Protocol):
    """What is known of a question, in the store or in a view."""

    @property
    def id(self) -> str:
        """The question's id."""

    @property
    def prompt(self) -> str:
        """The question's text."""

    @property
    def answer(self) -> str:
        """The answer key."""

    @property
    def choices(self) -> tuple[str, ...]:
        """What can be chosen."""


def questions_digest(questions: Sequence[Askable]) -> str:
    """A fingerprint of what was asked and what counts as right, whatever the order of the questions."""
    rows = sorted([one.id, one.prompt, one.answer, list(one.choices)] for one in questions)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def benchmark_key(config: RunConfig, questions: Sequence[Question], rubric: Rubric) -> str:
    """Equal for runs of one benchmark.

    Questions whose texts nobody has, as of an imported array, are known by their numbers alone, which are those of any
    other benchmark too: their runs are of one benchmark where they have one name.
    """
    known = any(one.prompt.strip() or one.choices for one in questions)
    put = config.prompt.model_dump(mode="json")
    parts = [questions_digest(questions), rubric.names, rubric.weights, None if known else config.name, put]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def benchmark_name(config: RunConfig) -> str:
    """What people call it: the data set, the world, the file, or else the run."""
    source = config.questions
    if source.dataset is not None:
        whole = source.dataset.rpartition("/")[2]
        return whole if source.subset is None else f"{whole}/{source.subset}"
    if source.world is not None:
        return source.world
    stem = "" if source.path is None else source.path.stem
    return config.name if stem.lower() in NAMELESS or not stem else stem
