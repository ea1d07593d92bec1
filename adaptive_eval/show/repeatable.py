"""What identifies a published run besides its configuration: its questions."""

import hashlib
import json
from collections.abc import Sequence

from adaptive_eval.questions.types import Question
from adaptive_eval.report.view import QuestionView


def questions_digest(questions: Sequence[Question | QuestionView]) -> str:
    """Digest of questions and answer keys, regardless of their order."""
    rows = sorted([question.id, question.prompt, question.answer, list(question.choices)] for question in questions)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()
