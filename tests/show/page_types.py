"""Write sent.d.ts: the types of what a server sends to the page, as its modules read them, from the Python types.

    python tests/show/page_types.py

Only the type check reads the file, which `.ci/run` writes for it; nothing of it is shipped or kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from adaptive_eval.report.glossary import GLOSSARY, Term
from adaptive_eval.report.question_rows import CountedRows
from adaptive_eval.show.page.sent import PageView
from adaptive_eval.show.serve.page_state import AnswersPage, RunProgress

SENT = (PageView, RunProgress, AnswersPage, Term)
NO_ROWS = (CountedRows, tuple[()])
"""Rows of questions, which no page is sent."""
PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", object: "any", NoneType: "null"}
FILE = Path(__file__).with_name("sent.d.ts")
HEAD = """\
// What a server sends to the page, or a report carries. Numbers that do not exist are null.
// Written by page_types.py from the Python types.
"""


def written(kind: Any) -> str:
    """A Python type in TypeScript."""
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


def collect(kind: Any, declared: dict[str, dict[str, str]]) -> None:
    """Add the fields of a dataclass, and of those within it."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        shape = {field.name: written(hints[field.name]) for field in fields(kind)}
        if declared.setdefault(kind.__name__, shape) is shape:  # type: ignore[union-attr]
            for hint in hints.values():
                collect(hint, declared)
    for inner in get_args(kind):
        collect(inner, declared)


def declarations() -> str:
    """The text of the file."""
    declared: dict[str, dict[str, str]] = {"Glossary": dict.fromkeys(GLOSSARY, "Term")}
    for kind in SENT:
        collect(kind, declared)
    parts = [
        f"\ninterface {name} {{\n" + "".join(f"  {key}: {kind};\n" for key, kind in shape.items()) + "}\n"
        for name, shape in sorted(declared.items())
    ]
    return f"{HEAD}{''.join(parts)}\ntype TermKey = keyof Glossary;\n"


if __name__ == "__main__":
    FILE.write_text(declarations(), encoding="utf-8")
