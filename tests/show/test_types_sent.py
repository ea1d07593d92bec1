"""What the page's modules believe to be sent is what is sent: their types name every field, and no other."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib.resources import files
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from adaptive_eval.record.glossary import GLOSSARY, Term
from adaptive_eval.record.question_rows import CountedRows, WrittenRows
from adaptive_eval.record.transcripts import TranscriptEnd
from adaptive_eval.record.view import RunView
from adaptive_eval.show.serve.folder import RunBrief
from adaptive_eval.show.serve.page_state import AnswersPage, RunProgress
from adaptive_eval.store.events import CLASSES

SENT = (RunView, RunProgress, RunBrief, AnswersPage, TranscriptEnd, Term)
NO_ROWS = (CountedRows, WrittenRows, tuple[()])
"""Rows of questions, which no page is sent."""
PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", object: "any", NoneType: "null"}


def written(kind: Any) -> str:
    """A Python type as JSDoc writes it."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in NO_ROWS:
        return "never[]"
    if is_dataclass(kind):
        return kind.__name__  # type: ignore[union-attr]
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(written, inner)))
    if origin is Mapping:
        return f"Record<string, {written(inner[1])}>"
    if origin is Sequence:
        inner = (*inner, Ellipsis)
    assert origin in (tuple, Sequence), kind
    if inner[-1] is not Ellipsis:
        return f"[{', '.join(map(written, inner))}]"
    item = written(inner[0])
    return f"({item})[]" if " | " in item else f"{item}[]"


def sent(kind: Any, known: dict[str, dict[str, str]]) -> None:
    """Adds the fields of a dataclass, and of those within it."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        shape = {one.name: written(hints[one.name]) for one in fields(kind)}
        if known.setdefault(kind.__name__, shape) is shape:  # type: ignore[union-attr]
            for hint in hints.values():
                sent(hint, known)
    for inner in get_args(kind):
        sent(inner, known)


def believed() -> Iterator[tuple[str, dict[str, str]]]:
    """The types of the module that reads what is sent."""
    source = (files("adaptive_eval.show.page") / "static" / "sent.js").read_text("utf-8")
    for comment in re.findall(r"/\*\*(.*?)\*/", source, re.DOTALL):
        name = re.search(r"@typedef \{object\} (\w+)", comment)
        if name:
            yield (
                name[1],
                dict((key, kind) for kind, key in re.findall(r"@property \{(.+)\} (\w+)$", comment, re.MULTILINE)),
            )


def test_the_page_has_words_for_every_kind_of_event() -> None:
    source = (files("adaptive_eval.show.page") / "static" / "trouble.js").read_text("utf-8")
    listed = re.search(r"const EVENTS = \{\n(.*?)\n\};", source, re.DOTALL)
    assert listed is not None
    assert sorted(re.findall(r"^  (\w+): ", listed[1], re.MULTILINE)) == sorted(one.KIND for one in CLASSES)


def test_the_types_of_the_page_are_those_of_what_is_sent() -> None:
    known: dict[str, dict[str, str]] = {"Glossary": dict.fromkeys(GLOSSARY, "Term")}
    for kind in SENT:
        sent(kind, known)
    assert dict(believed()) == known
