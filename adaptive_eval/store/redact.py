"""The boundary at which secrets are removed: everything that enters the store passes here, whatever brought it.

An answer was graded as it came. A string that the grader found in it may be part of a secret: it stays only if the
answer, as it is stored, contains it. Names of models and questions stay as they are.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.secrets import REDACTED
from adaptive_eval.endpoints.types import Answer, AnswerLogprobs
from adaptive_eval.machine.records import Note
from adaptive_eval.machine.trial import GradeDetails, Trial


def redact_trial(trial: Trial, answer: Answer, redactor: Redactor) -> Trial:
    """A trial as stored. The address of its server comes from the configuration, which holds no secrets."""
    text, reasoning = redactor.text(answer.text), answer.reasoning and redactor.text(answer.reasoning)
    tokens, finish_reason = _redact_tokens(answer.token_logprobs, redactor), redactor.message(answer.finish_reason)
    is_changed = (text, reasoning) != (answer.text, answer.reasoning)

    def clean(value: str) -> str:
        if value in text or value in (reasoning or ""):
            return value
        return REDACTED if is_changed else redactor.text(value)

    grade = trial.grade
    if grade is not None:
        signals = {name: clean(value) if isinstance(value, str) else value for name, value in grade.signals.items()}
        extracted = None if grade.extracted is None else clean(grade.extracted)
        grade = GradeDetails(signals, extracted, None if grade.error is None else redactor.message(grade.error))
    if is_changed or (tokens, finish_reason) != (answer.token_logprobs, answer.finish_reason):
        answer = replace(answer, text=text, reasoning=reasoning, token_logprobs=tokens, finish_reason=finish_reason)
    return trial._replace(answer=answer, grade=grade)


def redact_note(note: Note, redactor: Redactor, names: Collection[str]) -> Note:
    """A note as stored and shown; `names` of models and questions stay."""

    def clean(text: str) -> str:
        return text if text in names else redactor.message(text)

    body = _map_texts(note.body, clean)
    return note if body == note.body else note._replace(body=body)


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A value with all its texts changed; members of enumerations are not texts."""
    if type(value) is str:
        return change(value)
    if isinstance(value, Mapping):
        return {_map_texts(key, change): _map_texts(part, change) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_map_texts(part, change) for part in value]
    return value


def _redact_tokens(logprobs: AnswerLogprobs | None, redactor: Redactor) -> AnswerLogprobs | None:
    """Log-probabilities without the texts of the tokens, if these texts contain a secret when joined."""
    if logprobs is None or redactor.text(text := "".join(logprobs.tokens)) == text:
        return logprobs
    return logprobs._replace(tokens=("",) * len(logprobs.tokens))
