"""Expected cost of a judge's or verifier's grades in a future run: as in a pilot, else guessed."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.core.policies import WEIGHTED
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import gpu_share
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import benchmark_questions, graders_that_ask
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.types import Question
from adaptive_eval.report.records import JudgeUse
from adaptive_eval.study.pilot import BYTES_PER_TOKEN, GUESSED_SHARE, GUESSED_TOKENS_PER_SECOND, AnswerUsage


class ExpectedGrade(NamedTuple):
    """Cost of grading one answer, with sentences on its source."""

    cost: Cost = NO_COST
    remarks: tuple[str, ...] = ()


def paid_servers(config: RunConfig) -> tuple[ModelConfig | AskedGrader, ...]:
    """The models, and the models asked for grades."""
    seats = (seat for grader in graders_that_ask(config.grader).values() for seat in grader.seats)
    return (*config.models, *seats)


def expected_grade(
    prepared: PreparedRun, usage: AnswerUsage, seen: JudgeUse | None, source: str = "the pilot"
) -> ExpectedGrade:
    """Expected cost of a grade; empty if no model is asked for it. `seen`: usage of grades in `source`.

    If only some benchmarks have a judge, it grades their share of the answers.
    """
    expected = ExpectedGrade()
    for benchmark, grader in graders_that_ask(prepared.config.grader).items():
        questions = benchmark_questions(benchmark, prepared.questions)
        if seen is not None:
            cost = _cost_in_pilot(grader, seen)
            remark = f"a grade takes {cost.tokens:,} tokens of the {grader.kind}, as in {source}"
        else:
            cost = _guessed_cost(questions, grader, usage)
            remark = f"a grade is guessed to take {cost.tokens:,} tokens of the {grader.kind}, whose replies are short"
        share = share_of_answers(prepared, benchmark)
        cost = Cost(round(share * cost.tokens), share * cost.usd, share * cost.gpu_seconds)
        expected = ExpectedGrade(expected.cost.plus(cost), (*expected.remarks, remark))
    untimed = ("times do not include grading: a slow judge makes the run longer",) if expected.remarks else ()
    return expected._replace(remarks=(*expected.remarks, *untimed))


def share_of_answers(prepared: PreparedRun, benchmark: str) -> float:
    """About the share of a benchmark's questions in all answers; the policy asks more about those with more weight."""
    trials, weights = prepared.config.trials, prepared.plan.bench.question_weights
    if weights is None or trials.policy != WEIGHTED.name or trials.min == trials.max:
        return len(benchmark_questions(benchmark, prepared.questions)) / len(prepared.questions)
    asked = [not benchmark or benchmark_named(question.id) == benchmark for question in prepared.questions]
    return float(weights[asked].sum() / weights.sum())


def _cost_in_pilot(grader: AskedGrader, seen: JudgeUse) -> Cost:
    """Mean cost in the pilot, at today's prices if there is only one judge."""
    prompt, completion = seen.prompt_tokens / seen.answers, seen.completion_tokens / seen.answers
    usd = seen.usd / seen.answers
    if len(grader.seats) == 1:
        usd = 0.0 if grader.price is None else grader.price.usd(prompt, completion)
    return Cost(round(prompt + completion), usd, seen.gpu_seconds / seen.answers)


def _guessed_cost(questions: Sequence[Question], grader: AskedGrader, usage: AnswerUsage) -> Cost:
    """A request contains the question and the answer; a reply has a fixed share of its maximum."""
    answer = min(float(np.nanmean(usage.completion_tokens)) if usage.knows_tokens else 0.0, grader.max_answer_bytes)
    return reduce(Cost.plus, (_guessed_seat_cost(seat, questions, answer) for seat in grader.seats))


def _guessed_seat_cost(seat: AskedGrader, questions: Sequence[Question], answer: float) -> Cost:
    transcripts = (seat.transcript(question, "") for question in questions)
    size = float(
        np.mean([len(transcript.system.encode()) + len(transcript.user.encode()) for transcript in transcripts])
    )
    prompt = size / BYTES_PER_TOKEN + answer
    completion = max(GUESSED_SHARE * (seat.sampling.max_tokens or 0), 1.0)
    seconds = completion / GUESSED_TOKENS_PER_SECOND * gpu_share(seat.gpus, seat.host, seat.concurrency.in_flight)
    usd = 0.0 if seat.price is None else seat.price.usd(prompt, completion)
    return Cost(round(seat.replies * (prompt + completion)), seat.replies * usd, seat.replies * seconds)
