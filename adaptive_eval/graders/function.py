"""The grader that calls a user's function, `package.module:function`.

Worker processes load only this grader's module.
"""

import math
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from adaptive_eval.base.errors import ConfigError, GraderError
from adaptive_eval.base.imports import load_attribute
from adaptive_eval.base.sections import Specification
from adaptive_eval.graders.types import GraderOptions, Marks, SignalValue, usual_answers
from adaptive_eval.questions.types import Question


class Python(GraderOptions):
    """Calls `function(text, question, **options)`, which returns true or false, a number, or a mapping of signals.

    `text` is the model's text, including reasoning; `question` has id, prompt, answer, choices, cluster and metadata.
    A number becomes the signal `score`, and counts as correct from 0.5 on. A mapping may contain the extracted answer
    under `extracted`. The function runs in a worker process; an exception is a grader error, and printed output is
    dropped. If it has an attribute `prepare`, that is called with the options before the first answer, outside the
    time limit.
    """

    reads_key = False
    kind: Literal["python"] = "python"
    function: Specification
    """`package.module:function`, from the folder of the configuration or an installed package."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the function."""
    signals: tuple[str, ...] = ()
    """Names of the function's signals, to check the rubric against."""
    key_is_answer: bool = True
    """Check before a run that every answer key is graded correct as an answer. Set it to false if keys are not answers,
    such as the tests of a program."""

    @property
    def gives(self) -> frozenset[str]:
        return frozenset(self.signals)

    @property
    def functions(self) -> tuple[str, ...]:
        return (self.function,)

    def quick(self, text: str, question: Question) -> Marks | None:
        return None

    def grade(self, text: str, question: Question) -> Marks:
        function: Any = load_attribute(self.function, Path())
        return make_marks(function(text, question, **self.options), self.function)

    def warm_up(self) -> None:
        function: Any = load_attribute(self.function, Path())
        if isinstance(function, type) or not callable(function):
            kind = "a class" if isinstance(function, type) else f"a value of type {type(function).__name__}"
            raise ConfigError(
                f"grader.function: {self.function} must be a function of text and question, but is {kind}; "
                "put further arguments in grader.options"
            )
        try:
            signature(function).bind("", None, **self.options)
        except TypeError as error:
            given = ", ".join(["text", "question", *self.options])
            raise ConfigError(f"grader.function: {self.function} cannot be called with {given}: {error}") from error
        except ValueError:
            pass  # its signature is unknown
        if (prepare := getattr(function, "prepare", None)) is not None:
            prepare(**self.options)

    @property
    def knows_right_answers(self) -> bool:
        return self.key_is_answer

    def right_answers(self, question: Question) -> tuple[str, ...]:
        return usual_answers(question.answer) if question.answer.strip() else ("",)


def make_marks(result: object, name: str) -> Marks:
    """Convert the return value of a user's function to marks."""
    result = _plain(result)
    if isinstance(result, bool):
        return Marks({"is_correct": result}, None)
    if isinstance(result, int | float):
        return Marks({"is_correct": bool(result >= 0.5), "score": _signal(result, "score", name)}, None)
    if not isinstance(result, Mapping):
        raise GraderError(f"{name} must return true, false, a number or a mapping of signals, but got {result!r:.80}")
    extracted = result.get("extracted")
    signals = {str(key): _signal(value, str(key), name) for key, value in result.items() if key != "extracted"}
    return Marks(signals, None if extracted is None else str(extracted))


def _plain(value: Any) -> object:
    """A scalar of numpy, or of a library like it, as Python's; the worker need not import any."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _signal(given: object, key: str, name: str) -> SignalValue:
    value = _plain(given)
    if key == "is_correct" and value not in (0, 1):
        raise GraderError(f"{name} must return true or false for signal is_correct, but got {value!r:.80}")
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise GraderError(
        f"{name} must return true, false, a finite number or a text for signal {key}, but got {value!r:.80}"
    )
