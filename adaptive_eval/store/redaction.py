"""The boundary through which everything passes that enters the store: secrets of the run are removed here.

Trials, grades and events come from servers, graders and other programs by many ways. Whatever brought them, `Store` and
`Draft` write them as these functions return them, and the run goes on with what was written: a resume reads the same.
Names of models and questions stay as they are, since records are found by them.

An answer was graded as it came. A string that the grader found in it may be part of a secret: it stays only if the
answer, as it is stored, contains it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.secrets import REDACTED
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.notes.event import Event
from adaptive_eval.store.records import CommitBatch, Regrade, TrialRecord

Kept = TypeVar("Kept", bound=Event)


def redact_batch(batch: CommitBatch, redactor: Redactor, names: Collection[str]) -> CommitBatch:
    """The batch as it is stored. Its looks consist of names and numbers."""
    return replace(
        batch,
        trials=[redact_trial(one, redactor) for one in batch.trials] if redactor else batch.trials,
        events=[redact_event(one, redactor, names) for one in batch.events],
        verdicts=[redact_grade(one, redactor) for one in batch.verdicts] if redactor else batch.verdicts,
    )


def redact_trial(record: TrialRecord, redactor: Redactor) -> TrialRecord:
    """A trial as it is stored. The address of its server comes from the configuration, which holds no secrets."""
    answer = record.answer
    text, reasoning = redactor.text(answer.text), answer.reasoning and redactor.text(answer.reasoning)
    tokens, finish_reason = _redact_tokens(answer.token_logprobs, redactor), redactor.message(answer.finish_reason)
    is_changed = (text, reasoning) != (answer.text, answer.reasoning)

    def found(said: str) -> str:
        if said in text or said in (reasoning or ""):
            return said
        return REDACTED if is_changed else redactor.text(said)

    grade = (
        {name: found(one) if isinstance(one, str) else one for name, one in record.signals.items()},
        None if record.extracted is None else found(record.extracted),
        None if record.grader_error is None else redactor.message(record.grader_error),
    )
    is_changed = is_changed or (tokens, finish_reason) != (answer.token_logprobs, answer.finish_reason)
    if is_changed:
        answer = replace(answer, text=text, reasoning=reasoning, token_logprobs=tokens, finish_reason=finish_reason)
    elif grade == (record.signals, record.extracted, record.grader_error):
        return record
    return replace(record, answer=answer, signals=grade[0], extracted=grade[1], grader_error=grade[2])


def redact_grade(grade: Regrade, redactor: Redactor) -> Regrade:
    """The grade of a stored answer as it is stored."""

    def found(value: SignalValue) -> SignalValue:
        return redactor.text(value) if isinstance(value, str) else value

    return grade._replace(
        signals={name: found(value) for name, value in grade.signals.items()},
        extracted=None if grade.extracted is None else redactor.text(grade.extracted),
        grader_error=None if grade.grader_error is None else redactor.message(grade.grader_error),
    )


def redact_event(event: Kept, redactor: Redactor, names: Collection[str]) -> Kept:
    """An event as it is stored and shown; `names` of models and questions stay."""

    def clean(text: str) -> str:
        return text if text in names else redactor.message(text)

    each = ((one.name, getattr(event, one.name)) for one in fields(event))
    changed: dict[str, Any] = {name: new for name, value in each if (new := _map_texts(value, clean)) != value}
    return replace(event, **changed) if changed else event


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A value with all its texts changed; members of enumerations are no texts."""
    if type(value) is str:
        return change(value)
    if isinstance(value, Mapping):
        return {_map_texts(key, change): _map_texts(one, change) for key, one in value.items()}
    if isinstance(value, tuple | list):
        each = (_map_texts(one, change) for one in value)
        return type(value)(*each) if hasattr(value, "_fields") else type(value)(each)
    return value


def _redact_tokens(logprobs: AnswerLogprobs | None, redactor: Redactor) -> AnswerLogprobs | None:
    """Log-probabilities without the texts of the tokens, if a secret can be put together from these."""
    if logprobs is None or redactor.text(text := "".join(logprobs.tokens)) == text:
        return logprobs
    return logprobs._replace(tokens=("",) * len(logprobs.tokens))
