"""The grader that calls a user's function, `package.module:function`.

Grading processes load this module without those of other graders.
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

    The text is what the model wrote, reasoning included; `question` has id, prompt, answer, choices, cluster and
    metadata. A number is the signal `score`, correct from 0.5 on. A mapping may have the answer that was found under
    `extracted`. It runs in a worker process; an exception is a grader error, and printed output is dropped. If it has
    an attribute `prepare`, that is called with the options before the first answer, outside its time limit.
    """

    reads_key = False
    kind: Literal["python"] = "python"
    function: Specification
    """`package.module:function`, searched in the folder of the configuration and in installed packages."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the function."""
    signals: tuple[str, ...] = ()
    """Names of the function's signals, against which the rubric is then checked."""
    key_is_answer: bool = True
    """Check before a run that every answer key, taken as an answer, is graded right; set it to false if keys are no
    answers, such as the tests of a program."""

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
            what = "a class" if isinstance(function, type) else f"a value of type {type(function).__name__}"
            raise ConfigError(
                f"grader.function: {self.function} must be a function of text and question, but is {what}; "
                "further arguments stand in grader.options"
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


def make_marks(said: object, name: str) -> Marks:
    """Convert the return value of a user's function to marks."""
    if isinstance(said, bool):
        return Marks({"is_correct": said}, None)
    if isinstance(said, int | float):
        return Marks({"is_correct": said >= 0.5, "score": _signal(said, "score", name)}, None)
    if not isinstance(said, Mapping):
        raise GraderError(f"{name} must return true, false, a number or a mapping of signals, but got {said!r:.80}")
    extracted = said.get("extracted")
    signals = {str(key): _signal(value, str(key), name) for key, value in said.items() if key != "extracted"}
    return Marks(signals, None if extracted is None else str(extracted))


def _signal(value: object, key: str, name: str) -> SignalValue:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise GraderError(
        f"{name} must give true, false, a finite number or a text for signal {key}, but got {value!r:.80}"
    )
