"""A small run to store: two models, two questions, and a way to build its trials."""

from collections.abc import Mapping

from adaptive_eval.core.answer_kinds import answer_kinds
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer, AnswerLogprobs
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.machine.trial import DONE, UNGRADED, GradeDetails, Trial, TrialState
from adaptive_eval.store.header import RunHeader

HEADER = RunHeader(
    name="two-by-two",
    configuration={"budget": {"trials": 100}, "seed": 7},
    meaning={"seed": 7, "prompt": {"template": "{prompt}"}, "grader": "exact", "rubric": [0.0, 1.0]},
    models={"small": {"model": "s-1", "sampling": {"temperature": 0.6}}, "large": {"model": "l-1", "sampling": {}}},
    questions={"q1": {"prompt": "1+1?", "answer": "2"}, "q2": {"prompt": "2+2?", "answer": "4"}},
)
SMALL, LARGE = range(2)
"""Numbers of the models."""
Q1, Q2 = range(2)
"""Numbers of the questions."""
SIGNALS: Mapping[str, SignalValue] = {"correct": True, "distance": 0.5, "kind": "number"}
VERDICT = Cost(7, 0.125, 0.5)
"""What a grade has cost."""


def make_trial(
    model: int = SMALL,
    question: int = Q1,
    number: int = 0,
    *,
    text: str | None = None,
    reasoning: str | None = "because",
    error: str | None = None,
    signals: Mapping[str, SignalValue] = SIGNALS,
    extracted: str | None = "2",
    state: TrialState | None = None,
    logprobs: AnswerLogprobs | None = None,
    verdict: Cost = VERDICT,
) -> Trial:
    """A graded trial whose every optional field is set; with `error`, its grader has failed on it."""
    answer = Answer(
        text=f"answer {number} of {model} to {question}" if text is None else text,
        finish_reason="stop",
        seed=1000 + number,
        replica="http://127.0.0.1:8000/v1",
        latency=1.25,
        reasoning=reasoning,
        prompt_tokens=11,
        completion_tokens=22,
        ttft=0.5,
        attempts=2,
        completion_bpt=0.75,
        prompt_bpt=1.5,
        signals=frozenset({"truncated", "refusal"}),
        token_logprobs=logprobs,
    )
    return Trial(
        *(model, question, number, number // 2),
        state=(DONE if error is None else UNGRADED) if state is None else state,
        cost=Cost(33, 0.001, 2.5),
        verdict=verdict,
        category=number % 2 if error is None else None,
        kinds=answer_kinds("truncated refusal"),
        seconds=1.25,
        answer=answer,
        grade=GradeDetails(signals, extracted) if error is None else GradeDetails(error=error),
    )
