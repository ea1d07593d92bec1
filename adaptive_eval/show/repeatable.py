"""What identifies a published run besides its configuration: its version and its questions."""

import hashlib
import json
from collections.abc import Sequence

from adaptive_eval.notes import RunResumed, RunStarted
from adaptive_eval.questions.types import Question
from adaptive_eval.report.view import QuestionView, RunView

START_EVENTS = (RunStarted.KIND, RunResumed.KIND)


def published_version(view: RunView) -> str:
    """Version of adaptive-eval at the latest start, which determines the defaults; "" if it is unknown."""
    begun = [event for event in view.events if event.kind in START_EVENTS]
    return str(begun[-1].body.get("version", "")) if begun else ""


def questions_digest(questions: Sequence[Question | QuestionView]) -> str:
    """Digest of questions and answer keys, regardless of their order."""
    rows = sorted([question.id, question.prompt, question.answer, list(question.choices)] for question in questions)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()
