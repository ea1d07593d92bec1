"""Parses a judge's ballot from its reply: as JSON if the server enforces that, else line by line.

Each line carries the number of the transcript, so a verdict written in the answer does not count, even if the judge
quotes it. A JSON reply must end with the object, and no other object in it may differ. Reasoning before the reply is
ignored.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.answer_text import embedded_json, final_text

VERDICT = "verdict"
REASONING = "reasoning"
"""The field of a JSON reply for the judge's reasoning, before its decision."""
BRACE = re.compile("{")
MAX_QUOTED = 60
"""Characters quoted of an unreadable reply."""
CONFLICTING_VERDICTS = "the judge gave several verdicts in one reply"


class BallotField(NamedTuple):
    """A field of a ballot."""

    name: str
    levels: tuple[str, ...]
    """The allowed values."""


Ballot = Sequence[BallotField]
Levels = tuple[str, ...]
"""The chosen level of each field."""


def line_instructions(ballot: Ballot, number: str) -> str:
    """The instructions for a reply in lines."""
    if [field.name for field in ballot] == [VERDICT]:
        instruction = "Choose exactly one verdict, and end your reply with one line of this form:"
        return f"{instruction}\n{_mark(VERDICT, number)} <verdict>"
    lines = "\n".join(f"{_mark(field.name, number)} <level>" for field in ballot)
    return f"Choose one level for each, and end your reply with these lines, in this order:\n{lines}"


def parse_line_ballot(reply: str, number: str, ballot: Ballot) -> Levels:
    """Parse the ballot lines at the end of a reply; raises `GraderError` if there are none, or several that differ."""
    reply = _after_reasoning(reply)
    plain = [line.replace("*", "").replace("`", "").strip() for line in reply.splitlines()]
    lines = [line for line in plain if line]
    marks = [_mark(field.name, number) for field in ballot]
    marked = [line for line in lines if any(mark in line for mark in marks)]
    last = lines[-len(marks) :]
    ends = len(last) == len(marks) and all(line.startswith(mark) for line, mark in zip(last, marks, strict=True))
    if not ends or marked[-len(marks) :] != last:
        expected = "the line that was" if len(marks) == 1 else "the lines that were"
        ending = f"it ends with {reply.strip()[-MAX_QUOTED:]!r}" if lines else "it is empty"
        raise GraderError(f"the judge gave no verdict: its reply does not end with {expected} requested: {ending}")
    for mark in marks:
        if len({line.partition(mark)[2].strip().casefold() for line in marked if line.startswith(mark)}) > 1:
            raise GraderError(CONFLICTING_VERDICTS)
    return tuple(
        _find_level(line.partition(mark)[2], field) for line, mark, field in zip(last, marks, ballot, strict=True)
    )


def json_instructions(ballot: Ballot) -> str:
    """The instructions for a reply in JSON."""
    members = [f'"{REASONING}" (a few sentences)']
    members += [f'"{field.name}" (one of {", ".join(json.dumps(level) for level in field.levels)})' for field in ballot]
    return f"Reply with one JSON object and nothing else. Its members, in this order: {'; '.join(members)}."


def reply_format(ballot: Ballot) -> dict[str, Any]:
    """The `response_format` of a request for a reply in JSON."""
    properties: dict[str, Any] = {REASONING: {"type": "string"}}
    properties |= {field.name: {"type": "string", "enum": list(field.levels)} for field in ballot}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": VERDICT, "strict": True, "schema": schema}}


def parse_json_ballot(reply: str, ballot: Ballot) -> Levels:
    """Parse the ballot object at the end of a reply; raises `GraderError` if there is none, or several that differ."""
    text = reply.strip()
    if text[:1] not in ("{", "`"):  # otherwise an apparent end of reasoning would be inside the object
        text = _after_reasoning(text).strip()
    ballots = [(value, end) for value, end in embedded_json(text, BRACE, _unique_fields) if _fits(value, ballot)]
    if not ballots or text[ballots[-1][1] :].strip() not in ("", "```"):
        beginning = f"it begins with {text[:MAX_QUOTED]!r}" if text else "it is empty"
        raise GraderError(f"the judge gave no verdict: its reply is not the requested JSON object: {beginning}")
    choices = {tuple(_find_level(value[field.name], field) for field in ballot) for value, _ in ballots}
    if len(choices) > 1:
        raise GraderError(CONFLICTING_VERDICTS)
    return choices.pop()


def _after_reasoning(reply: str) -> str:
    """The reply without the reasoning before it; raises `GraderError` if there is nothing else."""
    final = final_text(reply)
    if reply.strip() and not final.strip():
        raise GraderError(
            "the judge gave no verdict: its reply has only reasoning; if that was cut off, raise "
            "grader.sampling.max_tokens"
        )
    return final


def _fits(value: Any, ballot: Ballot) -> bool:
    names = {field.name for field in ballot}
    return isinstance(value, dict) and names <= value.keys() <= {REASONING, *names}


def _unique_fields(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise GraderError(CONFLICTING_VERDICTS)
    return dict(pairs)


def _find_level(value: object, field: BallotField) -> str:
    """The level named in a reply, ignoring case; raises `GraderError` if there is no such level."""
    levels = {level.casefold(): level for level in field.levels}
    if not isinstance(value, str) or value.strip().casefold() not in levels:
        which = "" if field.name == VERDICT else f" of {field.name}"
        raise GraderError(f"the judge gave a verdict{which} other than {', '.join(field.levels)}: {value!r:.60}")
    return levels[value.strip().casefold()]


def _mark(name: str, number: str) -> str:
    return f"{name.upper()}-{number}:"
