"""Records of logs: one trial with its place in the log, in the same form for every format.

Logs may contain anything, so values of the wrong type are ignored. A score becomes a category only if the rubric has
one with that weight.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import orjson
from pydantic import ValidationError

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.answers import text_signals
from adaptive_eval.endpoints.types import Answer, Sampling, Signal
from adaptive_eval.graders.types import FINISH_NOT_LOGGED, INSPECT_LETTERS, SignalValue
from adaptive_eval.store.packing import valid_text

MAX_EXACT_INTEGER = 2**53
"""The largest number up to which floats represent every integer exactly."""


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def finite_number(value: object) -> float | None:
    """The value if it is a finite number from 0 on, such as a cost or a time, else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_EXACT_INTEGER:
        return float(value)
    return None


def whole_number(value: object) -> int | None:
    """The value if it is an integer from 0 on that a table can hold, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_EXACT_INTEGER else None


WORDS = {"true": 1.0, "yes": 1.0, "correct": 1.0, "false": 0.0, "no": 0.0, "incorrect": 0.0}


def value_of_score(score: object) -> float | None:
    """The number that a score stands for; None if there is none."""
    if isinstance(score, str):
        text = score.strip()
        value = INSPECT_LETTERS.get(text, WORDS.get(text.lower()))
        return value if value is not None else _number(text)
    return _number(score) if isinstance(score, bool | int | float) else None


def _number(score: str | float) -> float | None:
    try:
        value = float(score)
    except (OverflowError, ValueError):
        return None
    return value if math.isfinite(value) else None


NOT_LOGGED = -1
"""Seed of a trial whose log does not have it."""
REPLICA = "import"
"""Name used for the server of an imported answer."""
SEVERAL_ANSWERS = "has several right answers, and a grader compares with one; leave it out, or grade it elsewhere"


class LoggedSettings(NamedTuple):
    """A model's settings, if its log has them, with keys and values of the configuration."""

    served: str | None = None
    """The model's name on its server."""
    sampling: Mapping[str, object] = {}
    system: str | None = None
    api: Literal["chat", "completions"] = "chat"
    grader: str | None = None
    """The kind of our grader closest to the scorer of the log."""


def known_sampling(given: Mapping[str, object]) -> Mapping[str, object]:
    """The valid settings among those of a log."""
    valid: dict[str, object] = {}
    for key, value in given.items():
        with suppress(TypeError, ValidationError):  # TypeError: not JSON, such as integers beyond 64 bits
            setting = orjson.dumps({key: value})
            Sampling.model_validate_json(setting, strict=True)
            valid |= orjson.loads(setting)
    return valid


class LoggedQuestion(NamedTuple):
    """A question, if its log has it; empty texts are unknown."""

    prompt: str = ""
    answer: str = ""
    choices: tuple[str, ...] = ()
    cluster: str | None = None


class Record(NamedTuple):
    """A trial of a log."""

    place: str
    """The record within its file, for messages."""
    model: str
    question: str
    trial: int | None
    """Its number in the log, from 0; None to number trials in the order of the log."""
    number: int = -1
    """Its number in the run, once it is known."""
    task: str = ""
    """The benchmark of the question, if the log has it."""
    asked: LoggedQuestion = LoggedQuestion()
    settings: LoggedSettings = LoggedSettings()
    answer: Answer | None = None
    """The answer with its measurements; None if the log has none."""
    has_text: bool = False
    """Whether the text of `answer` is the model's; False if the log omits it."""
    category: int | None = None
    label: str | None = None
    """Name of the category in the log."""
    value: float | None = None
    """The score in the log; with a category, its weight in the log's own rubric."""
    scorer: str | None = None
    """The scorer of the log that gave `value`; None if it names none."""
    said: float | None = None
    """A score beside a category, which may not say the contrary."""
    lower_is_better: bool = False
    """Whether lower scores are better."""
    signals: Mapping[str, SignalValue] = {}
    extracted: str | None = None
    grader_error: str | None = None
    """Why the log has no grade."""
    cost: Cost = NO_COST
    round: int = 0
    missing: str | None = None
    """Why this is not a trial: the request failed, or its outcome was invalidated."""
    identity: str | None = None
    """Equal for copies of the same trial."""
    is_own_export: bool = False
    """Whether it comes from an export of this program; then it is a trial even if its answer repeats another."""
    of_task: bool = False
    """Whether it is a sample that an Inspect task scored for a run; its id then names the trial."""

    @property
    def seed(self) -> int | None:
        """The seed; None if the log does not have it."""
        return None if self.answer is None or self.answer.seed == NOT_LOGGED else self.answer.seed


def single_prompt(turns: Sequence[tuple[object, str]]) -> tuple[str, str | None] | None:
    """Prompt and optional system message of a conversation without further turns; None for any other."""
    match turns:
        case [("user", prompt)]:
            return prompt, None
        case [("system", system), ("user", prompt)]:
            return prompt, system
    return None


def tidy_text(text: str) -> str:
    """A text without invalid Unicode, which neither tables nor configurations can hold."""
    return valid_text(text) or ""


def logged_answer(
    text: str,
    *,
    finish_reason: str = "stop",
    reasoning: str | None = None,
    latency: float = 0.0,
    prompt_tokens: int = 0,
    completion_tokens: int = 0,
    used_tools: bool = False,
    more: frozenset[Signal] = frozenset(),
) -> Answer:
    """An answer from a log, with the signals that an endpoint would have given it."""
    return Answer(
        text=text,
        finish_reason=tidy_text(finish_reason),
        seed=NOT_LOGGED,
        replica=REPLICA,
        latency=latency,
        reasoning=reasoning,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        signals=text_signals(text, finish_reason, reasoning, used_tools=used_tools) | more,
    )


NO_ANSWER = Answer(text="", finish_reason=FINISH_NOT_LOGGED, seed=NOT_LOGGED, replica=REPLICA, latency=0.0)
"""The answer of a trial with only a grade."""
