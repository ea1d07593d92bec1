"""Runs with few trials that were not sampled but made up, so that every value in them is known."""

from collections.abc import Iterable
from pathlib import Path

import yaml
from stored_runs import store_records

from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.report.records import TrialRecord

HOSTILE = (
    '=cmd|"/c calc"!A0',
    "+1+1",
    "-2+3",
    "@SUM(A1:A9)",
    "\t=1+1",
    "  =1+1",
    "\r=1+1",
    "＝1+1",
    'a "quoted", cell\r\nwith\rline\nbreaks and a \0',
    "\ud800 half of a pair",
    "</script><script>alert(1)</script>",
)
"""What a model may write to be run by whoever opens the file."""
MODELS = ("org/ada: 7b", "bob")
QUESTIONS = ("q1", "q2")


def make_trial(model: str, question: str, trial: int, category: int | None, **changes: object) -> TrialRecord:
    """One trial; answers have what a server may send, graders' signals are those of `math`."""
    answer: dict[str, object] = {
        "text": f"{model} says {trial}",
        "finish_reason": "stop",
        "seed": 100 + trial,
        "replica": "http://127.0.0.1:9/v1",
        "latency": 1.5,
        "reasoning": "because",
        "prompt_tokens": 10,
        "completion_tokens": 20 + trial,
        "completion_bpt": 0.5,
    }
    extra = {key: changes.pop(key) for key in list(changes) if key in Answer.__slots__ and key != "signals"}
    fields: dict[str, object] = {
        "round": 0,
        "answer": Answer(**(answer | extra)),  # type: ignore[arg-type]
        "signals": {"is_correct": category == 1, "has_answer": True, "has_box": trial % 2 == 0},
        "extracted": str(trial),
        "grader_error": None if category is not None else "killed after 10 s",
        "cost": Cost(30 + trial, 0.25, 2.0),
    }
    return TrialRecord(model, question, trial, category=category, **(fields | changes))  # type: ignore[arg-type]


def ragged() -> list[TrialRecord]:
    """Both models on both questions: 3, 2, 4 and 2 trials, of which one has no grade."""
    grades = {
        ("org/ada: 7b", "q1"): [1, 1, 0],
        ("org/ada: 7b", "q2"): [0, 1],
        ("bob", "q1"): [0, None, 0, 1],
        ("bob", "q2"): [0, 0],
    }
    return [
        make_trial(model, question, trial, category)
        for (model, question), categories in grades.items()
        for trial, category in enumerate(categories)
    ]


def make_run(folder: Path, records: Iterable[TrialRecord], **settings: object) -> Path:
    """The directory of a run in `folder` that has these trials."""
    (folder / "questions.csv").write_text("id,prompt,answer\nq1,one?,1\nq2,two?,2\n")
    config: dict[str, object] = {
        "questions": "questions.csv",
        "models": [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in MODELS],
        "prompt": {"template": "{prompt} Think.", "system": "Be brief."},
        "sampling": {"temperature": 0.6, "max_tokens": 100},
        "grader": "math",
        "trials": {"min": 2, "max": 5, "optimize": "cost"},
    }
    path = folder / "made.yaml"
    config |= settings
    assert isinstance(config["trials"], dict)
    path.write_text(yaml.safe_dump(config))
    return store_records(folder / "run", prepare(load_config(path)).header, records)
