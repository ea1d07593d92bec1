"""Checks before anything is paid that a grader grades the answer keys themselves right."""

import asyncio
from collections.abc import Sequence
from typing import Literal, NamedTuple

from adaptive_eval.base.errors import ConfigError, GraderError, PartialCredit, first_lines
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import ByBenchmark, InspectScores, benchmark_questions
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.types import Question

AT_A_TIME = 256
SHOWN_PROBLEMS = 10
PARTIAL_SAMPLE = 8
"""Questions on which a function is tried for partial credit."""
CUT = 60


class KeysFound(NamedTuple):
    """The result of grading the answer keys."""

    right: int
    """Number of keys that are graded right."""
    unknown: str | None
    """Why nothing can be said of the others; None if all are right."""
    tried: bool = True
    """Whether the grader could be tried on the keys."""

    @property
    def summary(self) -> str:
        """The result in one line."""
        if not self.tried:
            return f"the answer keys are not tried: {self.unknown}"
        right = f"{self.right} answer keys are graded right"
        return right if self.unknown is None else f"{right}; the grader cannot be tried on the others: {self.unknown}"


class _KeyResult(NamedTuple):
    finding: Literal["right", "wrong", "failed", "unsaid"]
    """`unsaid` if the grader does not say whether an answer is correct, or there is no key."""
    problem: str = ""
    has_score: bool = False
    """Whether the grader gives a score, which may be partial credit for other answers."""


async def require_right_keys(grader: GraderOptions, pool: GradingPool, questions: Sequence[Question]) -> KeysFound:
    """Grade the key of every question, as models would give it; raises `ConfigError` if one is wrongly rejected."""
    if isinstance(grader, InspectScores):
        return KeysFound(0, "the scorer of the task grades", tried=False)
    if isinstance(grader, ByBenchmark):
        keyed = {name: one for name, one in grader.graders.items() if not isinstance(one, AskedGrader)}
        own = {name: benchmark_questions(name, questions) for name in keyed}
        found = [await require_right_keys(one, pool, own[name]) for name, one in keyed.items()]
        unknown = "; ".join(dict.fromkeys(one.unknown for one in found if one.unknown is not None))
        return KeysFound(sum(one.right for one in found), unknown or None)
    tried: list[_KeyResult] = []
    for start in range(0, len(questions), AT_A_TIME):
        some = questions[start : start + AT_A_TIME]
        tried += await asyncio.gather(*(_grade_key(grader, pool, question) for question in some))
        if pool.refused is not None:
            raise ConfigError(f"the grader {_name(grader)} {pool.refused}")
    right = sum(one.finding == "right" for one in tried)
    scored = [question for question, one in zip(questions, tried, strict=True) if one.has_score]
    await _require_categories(grader, pool, scored[:PARTIAL_SAMPLE])
    if isinstance(grader, Python) and not grader.key_is_answer:
        failed = [one.problem for one in tried if one.finding == "failed"]
        raised = f"; it fails on {len(failed)} of them: {failed[0]}" if failed else ""
        return KeysFound(right, f"grader.key_is_answer says that they are no answers{raised}")
    surely_wrong = {"wrong", "failed"} if grader.knows_right_answers or right else {"failed"}
    each = zip(questions, tried, strict=True)
    problems = [f"question {question.id}: {one.problem}" for question, one in each if one.finding in surely_wrong]
    if problems:
        raise ConfigError(_refusal(grader, problems))
    if any(one.finding == "unsaid" for one in tried):
        return KeysFound(right, "it does not say of every answer whether it is correct, or a question has no key")
    return KeysFound(right, "it may want a form of answer that only you know" if right < len(tried) else None)


async def _require_categories(grader: GraderOptions, pool: GradingPool, questions: Sequence[Question]) -> None:
    """Raise `ConfigError` if a grader gives partial credit that the rubric has no category for.

    The key in a sentence is an answer of which only a part is the key.
    """
    for question in questions:
        for text in grader.right_answers(question):
            try:
                await pool.grade(Answer(text, "stop", seed=0, replica="", latency=0.0), question)
            except PartialCredit as error:
                name = _name(grader)
                raise ConfigError(f"question {question.id}: the grader {name} on {_cut(text)}: {error}") from error
            except GraderError:
                continue


async def _grade_key(grader: GraderOptions, pool: GradingPool, question: Question) -> _KeyResult:
    """Grade the key in each usual form of an answer, until one is right."""
    wrong, failed = "", ""
    for text in grader.right_answers(question):
        try:
            marks = await pool.marks(text, question)
        except GraderError as error:
            failed = failed or f"on the answer {_cut(text)} {error}"
            continue
        has_score = "score" in marks.signals
        if "is_correct" not in marks.signals or not question.answer.strip():
            return _KeyResult("unsaid", has_score=has_score)
        if marks.signals["is_correct"]:
            return _KeyResult("right", has_score=has_score)
        found = "nothing is found in it" if marks.extracted is None else f"found in it: {_cut(marks.extracted)}"
        wrong = wrong or f"the answer {_cut(text)} is graded wrong ({found})"
    return _KeyResult("wrong", wrong) if wrong else _KeyResult("failed", failed)


def _refusal(grader: GraderOptions, problems: Sequence[str]) -> str:
    kind = _name(grader)
    lines = [f"the grader {kind} does not find right what the answer keys of some questions say:"]
    lines += first_lines(problems, SHOWN_PROBLEMS)
    mend = "mend the keys, or choose another grader"
    if kind == "python":
        mend = (
            "it is called as function(text, question), and an answer that is the key must be right; where the keys are "
            "no answers, such as the tests of a program, set grader.key_is_answer: false"
        )
    return "\n".join([*lines, mend])


def _name(grader: GraderOptions) -> str:
    return str(getattr(grader, "kind", type(grader).__name__))


def _cut(text: str) -> str:
    return repr(text if len(text) <= CUT else f"{text[:CUT]}…")
