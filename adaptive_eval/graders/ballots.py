"""Ballots that a judge fills in, parsed from its reply: as JSON if its server enforces that, else line by line.

A line carries the number of the transcript, so that a verdict written in the answer does not count, even if the judge
quotes it. A reply in JSON must end with the object, and no other object in it may differ. Reasoning before the reply is
ignored.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.answer_text import final_text

VERDICT = "verdict"
REASONING = "reasoning"
"""The field of a JSON reply in which the judge thinks before it decides."""
SHOWN = 60
"""Characters quoted of an unreadable reply."""
SEVERAL = "the judge gave several verdicts in one reply"
MOST_BRACES = 1_000
"""Braces of a reply at which an object is searched for."""


class BallotField(NamedTuple):
    """A field that a judge must fill in."""

    name: str
    levels: tuple[str, ...]
    """The allowed values."""


Ballot = Sequence[BallotField]
Levels = tuple[str, ...]
"""The chosen level of each field."""


def line_instructions(ballot: Ballot, number: str) -> str:
    """The instructions for a reply in lines."""
    if [one.name for one in ballot] == [VERDICT]:
        asked = "Choose exactly one verdict, and end your reply with one line of this form:"
        return f"{asked}\n{_mark(VERDICT, number)} <verdict>"
    lines = "\n".join(f"{_mark(one.name, number)} <level>" for one in ballot)
    return f"Choose one level for each, and end your reply with these lines, in this order:\n{lines}"


def parse_line_ballot(reply: str, number: str, ballot: Ballot) -> Levels:
    """Parse the ballot lines at the end of a reply; raises `GraderError` if there are none, or several that differ."""
    reply = _after_reasoning(reply)
    lines = [line for one in reply.splitlines() if (line := one.replace("*", "").replace("`", "").strip())]
    marks = [_mark(one.name, number) for one in ballot]
    told = [line for line in lines if any(mark in line for mark in marks)]
    last = lines[-len(marks) :]
    ends = len(last) == len(marks) and all(line.startswith(mark) for line, mark in zip(last, marks, strict=True))
    if not ends or told[-len(marks) :] != last:
        wanted = "the line that was" if len(marks) == 1 else "the lines that were"
        found = f"it ends with {reply.strip()[-SHOWN:]!r}" if lines else "it is empty"
        raise GraderError(f"the judge gave no verdict: its reply does not end with {wanted} asked for: {found}")
    for mark in marks:
        if len({line.partition(mark)[2].strip().casefold() for line in told if line.startswith(mark)}) > 1:
            raise GraderError(SEVERAL)
    return tuple(_find_level(line.partition(mark)[2], one) for line, mark, one in zip(last, marks, ballot, strict=True))


def json_instructions(ballot: Ballot) -> str:
    """The instructions for a reply in JSON."""
    members = [f'"{REASONING}" (a few sentences)']
    members += [f'"{one.name}" (one of {", ".join(json.dumps(level) for level in one.levels)})' for one in ballot]
    return f"Reply with one JSON object and nothing else. Its members, in this order: {'; '.join(members)}."


def reply_format(ballot: Ballot) -> dict[str, Any]:
    """The `response_format` of a request for a reply in JSON."""
    properties: dict[str, Any] = {REASONING: {"type": "string"}}
    properties |= {one.name: {"type": "string", "enum": list(one.levels)} for one in ballot}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": VERDICT, "strict": True, "schema": schema}}


def parse_json_ballot(reply: str, ballot: Ballot) -> Levels:
    """Parse the ballot object at the end of a reply; raises `GraderError` if there is none, or several that differ."""
    text = reply.strip()
    if text[:1] not in ("{", "`"):  # otherwise an apparent end of reasoning would be inside the object
        text = _after_reasoning(text).strip()
    found = [(one, end) for one, end in _objects(text) if _fits(one, ballot)]
    if not found or text[found[-1][1] :].strip() not in ("", "```"):
        seen = f"it begins with {text[:SHOWN]!r}" if text else "it is empty"
        raise GraderError(f"the judge gave no verdict: its reply is not the JSON object that was asked for: {seen}")
    said = {tuple(_find_level(object_[one.name], one) for one in ballot) for object_, _ in found}
    if len(said) > 1:
        raise GraderError(SEVERAL)
    return said.pop()


def _after_reasoning(reply: str) -> str:
    """The reply without the reasoning before it; raises `GraderError` if there is nothing else."""
    final = final_text(reply)
    if reply.strip() and not final.strip():
        raise GraderError(
            "the judge gave no verdict: its reply is reasoning alone; where that was cut off, raise "
            "grader.sampling.max_tokens"
        )
    return final


def _objects(text: str) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Each top-level JSON object in a text, with its end."""
    decoder, at = json.JSONDecoder(object_pairs_hook=_unique_fields), 0
    for _ in range(MOST_BRACES):
        if (at := text.find("{", at)) < 0:
            return
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            yield found, at


def _fits(found: Mapping[str, Any], ballot: Ballot) -> bool:
    names = {one.name for one in ballot}
    return names <= found.keys() <= {REASONING, *names}


def _unique_fields(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise GraderError(SEVERAL)
    return dict(pairs)


def _find_level(said: object, field: BallotField) -> str:
    """The level that a reply names, ignoring case; raises `GraderError` if it is none."""
    known = {level.casefold(): level for level in field.levels}
    if not isinstance(said, str) or said.strip().casefold() not in known:
        of = "" if field.name == VERDICT else f" of {field.name}"
        raise GraderError(f"the judge gave a verdict{of} that is none of {', '.join(field.levels)}: {said!r:.60}")
    return known[said.strip().casefold()]


def _mark(name: str, number: str) -> str:
    return f"{name.upper()}-{number}:"
