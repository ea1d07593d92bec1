"""Converts gathered records to trials of the store, with the grade of the log or of a grader."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.exchange.log_files import LogError
from adaptive_eval.exchange.samples import NO_ANSWER, Record
from adaptive_eval.graders.asked import USAGE_SIGNALS
from adaptive_eval.graders.pool import Grading, grade_or_error
from adaptive_eval.graders.rubric import LOGGED, Rubric, apply_rubric
from adaptive_eval.graders.types import SignalValue, answer_facts, score_signals
from adaptive_eval.questions import Question
from adaptive_eval.report.records import TrialRecord

WEIGHT_TOLERANCE = 1e-9


class RecordGrader:
    """Grades records by a rubric.

    Without a configuration, a grader grades all texts; otherwise only those without a category of the rubric, or a
    verdict that determines one, in the log.
    """

    def __init__(self, rubric: Rubric, pool: Grading | None, *, declared: bool) -> None:
        """`declared`: whether a configuration gave the rubric; without a `pool` the logs' grades are used."""
        self._rubric, self._pool, self._declared = rubric, pool, declared
        self._scorers: dict[str, tuple[str, str]] = {}
        """The scorer whose grades count for each task, and the place of the first."""

    @property
    def scorers(self) -> Mapping[str, str]:
        """The scorers of the logs whose grades count, by task."""
        return {task: scorer for task, (scorer, _) in self._scorers.items()}

    async def trials(self, batch: Sequence[Record], questions: Mapping[str, Question]) -> list[TrialRecord]:
        """Grade a batch of records."""
        if self._pool is None:
            return [self._logged_trial(record) for record in batch]
        pool = self._pool
        return await asyncio.gather(
            *(self._regraded_trial(record, questions[record.question], pool) for record in batch)
        )

    async def _regraded_trial(self, record: Record, question: Question, pool: Grading) -> TrialRecord:
        rubric = self._rubric
        if not self._declared and not record.has_text:
            raise LogError(f"{record.place}: has no text to grade; remove --grader to use the grade of the log")
        value, has_category = record.value, record.category is not None
        if self._declared and not has_category and value is not None and (value in (0, 1) or "score" in rubric.needs):
            # the rubric may need no more than a verdict or a score
            signals = score_signals(value, higher_is_better=not record.lower_is_better) | dict(record.signals)
            facts = {**answer_facts(record.answer or NO_ANSWER), **signals}
            if rubric.needs <= {*facts, "is_correct"}:
                self._require_same_scorer(record)
                return _trial(record, apply_rubric(facts, rubric, record.question), signals, record.extracted, None)
            if "is_correct" in rubric.needs and not record.has_text and (lacking := rubric.needs & LOGGED - {*facts}):
                has = f"the log has no {' and '.join(sorted(lacking))} of this trial"
                raise LogError(f"{record.place}: {has}, which the rubric needs; import with another rubric")
        if record.answer is None or not record.has_text or (self._declared and has_category):
            return self._logged_trial(record)
        grade = await grade_or_error(pool.grade, record.answer, question)
        judged = {name: record.signals[name] for name in USAGE_SIGNALS if name in record.signals}  # paid in any case
        if isinstance(grade, GraderError):
            return _trial(record, None, judged, None, str(grade))
        return _trial(record, grade.category, {**grade.signals, **judged}, grade.extracted, None)

    def _logged_trial(self, record: Record) -> TrialRecord:
        """The trial with the grade that its log gives."""
        rubric, signals = self._rubric, record.signals
        category = record.category if self._is_of_this_rubric(record) else None
        if category is not None and category >= len(rubric.weights):
            categories = ", ".join(f"{number} {name}" for number, name in enumerate(rubric.names))
            hint = "give --weights, or --config with a rubric that has it"
            raise LogError(
                f"{record.place}: the category must be one of the rubric's ({categories}), but got {category}; {hint}"
            )
        if category is not None or record.value is not None:
            self._require_same_scorer(record)
        if category is not None:
            self._require_no_contradiction(record, category)
        if category is None and record.value is not None:
            worth = _worth(record, rubric)
            category = self._category_of_score(record, worth)
            right = worth >= max(rubric.weights)
            signals = {"is_correct": right, "score": record.value, **signals}
        elif category is None and record.grader_error is None:
            hint = "give --grader math (or exact, choice ...), or --config"
            raise LogError(f"{record.place}: the log has no grade of this trial; {hint}")
        return _trial(record, category, signals, record.extracted, record.grader_error if category is None else None)

    def _require_same_scorer(self, record: Record) -> None:
        """Raise `LogError` if other grades of the task that count come from another scorer."""
        if record.scorer is None:
            return
        scorer, before = self._scorers.setdefault(record.task, (record.scorer, record.place))
        if scorer != record.scorer:
            raise LogError(
                f"{record.place}: the grade is that of {record.scorer!r:.80} here, and of {scorer!r:.80} in {before}, "
                "and grades by two scorers cannot be compared; choose one that all logs have with --scorer, or have "
                "all texts graded again: give --grader, without --config"
            )

    def _require_no_contradiction(self, record: Record, category: int) -> None:
        """Raise `LogError` if a category has the name of another one, or a score beside it says the contrary."""
        rubric = self._rubric
        name, weight = rubric.names[category], rubric.weights[category]
        ends = {1.0: min(rubric.weights), 0.0: max(rubric.weights)}
        is_named_otherwise = record.label != name and record.label in rubric.names
        if is_named_otherwise or (record.said is not None and ends.get(record.said) == weight):
            other = f"label {record.label}" if is_named_otherwise else f"a score of {plain_number(record.said or 0.0)}"
            hint = "remove the wrong one of these columns"
            raise LogError(f"{record.place}: has category {category}, which is {name}, and {other}; {hint}")

    def _category_of_score(self, record: Record, score: float) -> int:
        """The category with this weight; the rubric chooses among several."""
        rubric = self._rubric
        candidates = [number for number, weight in enumerate(rubric.weights) if abs(weight - score) <= WEIGHT_TOLERANCE]
        if len(candidates) > 1:
            facts = {**answer_facts(record.answer or NO_ANSWER), **record.signals}
            with suppress(GraderError):
                chosen = rubric.category({**facts, "score": score, "is_correct": score >= max(rubric.weights)})
                candidates = [chosen] if chosen in candidates else []
        if len(candidates) == 1:
            return candidates[0]
        categories = ", ".join(
            f"{name} {plain_number(weight)}" for name, weight in zip(rubric.names, rubric.weights, strict=True)
        )
        minus = ", with a minus sign since lower values are better" if record.lower_is_better else ""
        raise LogError(
            f"{record.place}: a score must be the weight of one category of the rubric ({categories}), but got "
            f"{plain_number(score)}; "
            f"name all scores with --weights, as in --weights 0,0.5,1{minus}, or give --config with a rubric by `score`"
        )

    def _is_of_this_rubric(self, record: Record) -> bool:
        """Whether a record's category is that of this rubric: it has the same name, or if unknown the same weight.

        Otherwise another rubric graded the log, and the weight counts: category 0 may be the best there. But if the
        user declared a rubric without this weight, the number counts, since only the weights differ.
        """
        rubric = self._rubric
        if record.category is None or record.value is None:
            return True
        if record.category >= len(rubric.weights):
            return False
        if self._declared and not any(math.isclose(record.value, weight) for weight in rubric.weights):
            return True
        if record.label is not None:
            return record.label == rubric.names[record.category]
        return math.isclose(record.value, rubric.weights[record.category])


def _worth(record: Record, rubric: Rubric) -> float:
    """The weight that a score stands for; if lower values are better, 0 means right in a binary rubric."""
    assert record.value is not None
    if not record.lower_is_better:
        return record.value
    return 1.0 - record.value if record.value in (0, 1) and {*rubric.weights} == {0.0, 1.0} else -record.value


def _trial(
    record: Record,
    category: int | None,
    signals: Mapping[str, SignalValue],
    extracted: str | None,
    grader_error: str | None,
) -> TrialRecord:
    return TrialRecord(
        model=record.model,
        question=record.question,
        trial=record.number,
        round=record.round,
        answer=record.answer or NO_ANSWER,
        category=category,
        signals=signals,
        extracted=extracted,
        grader_error=grader_error,
        cost=record.cost,
    )
