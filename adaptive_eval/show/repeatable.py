"""The published description of a run, to reproduce it."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from adaptive_eval.config.normalise import INHERITED
from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.by_benchmark import ByBenchmark
from adaptive_eval.notes import RunResumed, RunStarted
from adaptive_eval.questions.types import Question
from adaptive_eval.report.view import QuestionView, RunView

PLACE_SECTIONS = {"folder", "store"}
"""Sections with paths on the machine of the run."""
START_EVENTS = (RunStarted.KIND, RunResumed.KIND)


def view_config(view: RunView) -> RunConfig:
    """The configuration of the run, validated again."""
    return RunConfig.model_validate_json(json.dumps(view.configuration))


def published_version(view: RunView) -> str:
    """Version of adaptive-eval at the latest start, which determines the defaults; "" if it is unknown."""
    begun = [event for event in view.events if event.kind in START_EVENTS]
    return str(begun[-1].body.get("version", "")) if begun else ""


def questions_digest(questions: Sequence[Question | QuestionView]) -> str:
    """Digest of questions and answer keys, regardless of their order."""
    rows = sorted([question.id, question.prompt, question.answer, list(question.choices)] for question in questions)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def published_configuration(config: RunConfig) -> dict[str, object]:
    """The configuration without defaults and paths on the machine."""
    published: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True, exclude=PLACE_SECTIONS)
    for model in published["models"]:
        for section in INHERITED:
            if model.get(section) == published.get(section):
                model.pop(section, None)
        if model.get("simulate") or model.get("recorded") or model.get("inspect"):  # its address is never used
            del model["base_url"]
    published["grader"] = {"kind": config.grader.kind} | published.get("grader", {})
    if isinstance(config.grader, ByBenchmark):
        questions, graders = published.pop("questions")["benchmarks"], published.pop("grader")["graders"]
        for entry in published["benchmarks"]:  # as in a configuration file
            name = entry["name"]
            entry |= {
                "questions": questions[name],
                "grader": {"kind": config.grader.graders[name].kind} | graders[name],
            }
    first = ("name", "seed", "benchmarks", "questions", "models", "prompt", "sampling", "grader")
    order = [*first, *(key for key in published if key not in first)]
    return {key: published[key] for key in order if key in published}
