"""Checks, before any cost, that a grader grades the answer keys themselves correct."""

import asyncio
from collections.abc import Sequence
from typing import Literal, NamedTuple

from adaptive_eval.base.errors import ConfigError, GraderError, PartialCredit, first_lines
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import ByBenchmark, benchmark_questions
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.types import Question

CHUNK_SIZE = 256
SHOWN_PROBLEMS = 10
PARTIAL_SAMPLE = 8
"""Number of questions to check for partial credit."""
MAX_QUOTED = 60


class KeyCheck(NamedTuple):
    """The result of grading the answer keys."""

    right: int
    """Number of keys that are graded correct."""
    unknown: str | None
    """Why the other keys could not be checked; None if all are correct."""
    tried: bool = True
    """Whether the grader could be checked on the keys."""

    @property
    def summary(self) -> str:
        """The result in one line."""
        if not self.tried:
            return f"the answer keys are not checked: {self.unknown}"
        right = f"the grader accepts {'all ' if self.unknown is None else ''}{self.right} answer keys"
        return right if self.unknown is None else f"{right}; the others cannot be checked: {self.unknown}"


class _KeyResult(NamedTuple):
    finding: Literal["right", "wrong", "failed", "undecided"]
    """`undecided` if the grader does not report whether an answer is correct, or there is no key."""
    problem: str = ""
    has_score: bool = False
    """Whether the grader gives a score, which may mean partial credit for other answers."""


async def require_right_keys(grader: GraderOptions, pool: GradingPool, questions: Sequence[Question]) -> KeyCheck:
    """Grade the key of every question, in the forms that models use; raises `ConfigError` if a key is rejected."""
    if grader.comes_with_answer:
        return KeyCheck(0, "grades come with the answers", tried=False)
    if isinstance(grader, ByBenchmark):
        checks = [
            await require_right_keys(keyed, pool, benchmark_questions(name, questions))
            for name, keyed in grader.graders.items()
            if not isinstance(keyed, AskedGrader)
        ]
        unknown = "; ".join(dict.fromkeys(check.unknown for check in checks if check.unknown is not None))
        return KeyCheck(sum(check.right for check in checks), unknown or None)
    results: list[_KeyResult] = []
    for start in range(0, len(questions), CHUNK_SIZE):
        chunk = questions[start : start + CHUNK_SIZE]
        results += await asyncio.gather(*(_grade_key(grader, pool, question) for question in chunk))
        if pool.refused is not None:
            raise ConfigError(f"the grader {_name(grader)} {pool.refused}")
    right = sum(result.finding == "right" for result in results)
    scored = [question for question, result in zip(questions, results, strict=True) if result.has_score]
    await _require_categories(grader, pool, scored[:PARTIAL_SAMPLE])
    if right < len(results) and isinstance(grader, Python) and not grader.key_is_answer:
        failed = [result.problem for result in results if result.finding == "failed"]
        raised = f"; it fails on {len(failed)} of them: {failed[0]}" if failed else ""
        return KeyCheck(right, f"they need not be answers{raised}")
    rejecting = {"wrong", "failed"} if grader.knows_right_answers or right else {"failed"}
    graded = zip(questions, results, strict=True)
    problems = [
        f"question {question.id}: {result.problem}" for question, result in graded if result.finding in rejecting
    ]
    if problems:
        raise ConfigError(_format_problems(grader, problems))
    if any(result.finding == "undecided" for result in results):
        return KeyCheck(right, "the grader does not report whether every answer is correct, or a question has no key")
    return KeyCheck(right, "the grader may require another form of answer" if right < len(results) else None)


async def _require_categories(grader: GraderOptions, pool: GradingPool, questions: Sequence[Question]) -> None:
    """Raise `ConfigError` if a grader gives partial credit and the rubric has no category for it.

    It may give partial credit for the key within a sentence.
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
    """Grade the key in each usual form of an answer, until one is graded correct."""
    wrong, failed = "", ""
    for text in grader.right_answers(question):
        try:
            marks = await pool.marks(text, question)
        except GraderError as error:
            failed = failed or f"on the answer {_cut(text)} {error}"
            continue
        has_score = "score" in marks.signals
        if "is_correct" not in marks.signals or not question.answer.strip():
            return _KeyResult("undecided", has_score=has_score)
        if marks.signals["is_correct"]:
            return _KeyResult("right", has_score=has_score)
        reading = "nothing extracted" if marks.extracted is None else f"extracted: {_cut(marks.extracted)}"
        wrong = wrong or f"the answer {_cut(text)} is graded wrong ({reading})"
    return _KeyResult("wrong", wrong) if wrong else _KeyResult("failed", failed)


def _format_problems(grader: GraderOptions, problems: Sequence[str]) -> str:
    kind = _name(grader)
    lines = [f"the grader {kind} rejects the answer keys of some questions:"]
    lines += first_lines(problems, SHOWN_PROBLEMS)
    hint = "fix the keys, or choose another grader"
    if kind == "python":
        hint = (
            "function(text, question) must accept the key as an answer; if the keys are not answers, such as the tests "
            "of a program, set grader.key_is_answer: false"
        )
    return "\n".join([*lines, hint])


def _name(grader: GraderOptions) -> str:
    return str(getattr(grader, "kind", type(grader).__name__))


def _cut(text: str) -> str:
    return repr(text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…")
