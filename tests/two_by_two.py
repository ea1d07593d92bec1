"""A small run to store: two models, two questions, and a way to build its trials."""

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.store.header import RunHeader

HEADER = RunHeader(
    name="two-by-two",
    configuration={"budget": {"trials": 100}, "seed": 7},
    meaning={"seed": 7, "prompt": {"template": "{prompt}"}, "grader": "exact", "rubric": [0.0, 1.0]},
    models={"small": {"model": "s-1", "sampling": {"temperature": 0.6}}, "large": {"model": "l-1", "sampling": {}}},
    questions={"q1": {"prompt": "1+1?", "answer": "2"}, "q2": {"prompt": "2+2?", "answer": "4"}},
)


def make_trial(model: str = "small", question: str = "q1", trial: int = 0, **changes: object) -> TrialRecord:
    """A graded trial whose every optional field is set."""
    text = changes.pop("text", f"the answer of {model} to {question}, number {trial}")
    assert isinstance(text, str)
    answer = Answer(
        text=text,
        finish_reason="stop",
        seed=1000 + trial,
        replica="http://127.0.0.1:8000/v1",
        latency=1.25,
        reasoning="because",
        prompt_tokens=11,
        completion_tokens=22,
        ttft=0.5,
        attempts=2,
        completion_bpt=0.75,
        prompt_bpt=1.5,
        signals=frozenset({"truncated", "timed_out"}),
    )
    fields: dict[str, object] = {
        "model": model,
        "question": question,
        "trial": trial,
        "round": trial // 2,
        "answer": answer,
        "category": trial % 2,
        "signals": {"correct": bool(trial % 2), "distance": 0.5, "kind": "number"},
        "extracted": "2",
        "cost": Cost(33, 0.001, 2.5),
    }
    return TrialRecord(**(fields | changes))  # type: ignore[arg-type]
