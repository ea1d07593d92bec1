"""Markdown that also reads well as it stands: columns are as wide as what is in them."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from adaptive_eval.display.text import safe

NOTHING = ("", "-")
MARKUP = "\\`*_{}[]<>#|!~&"


def cell(text: str, longest: int = 200) -> str:
    """A text from outside as plain Markdown text on one line: nothing in it is markup, a link or a new column."""
    return "".join(f"\\{ch}" if ch in MARKUP else ch for ch in safe(text, longest))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are texts, the others numbers."""
    lines = [head, *rows]
    widths = [max(3, *(cell_len(line[column]) for line in lines)) for column in range(len(head))]
    rule = [f":{'-' * (width - 1)}" if at < left else f"{'-' * (width - 1)}:" for at, width in enumerate(widths)]
    padded = ([_pad(text, widths[at], at < left) for at, text in enumerate(line)] for line in lines)
    first, *others = (f"| {' | '.join(line)} |" for line in padded)
    return "\n".join([first, f"| {' | '.join(rule)} |", *others])


def telling(head: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows without the columns in which no row has anything to say."""
    lines = list(rows)
    kept = [at for at in range(len(head)) if any(line[at] not in NOTHING for line in lines)]
    return [head[at] for at in kept], [[line[at] for at in kept] for line in lines]


def fenced(text: str, language: str) -> str:
    """A block of code, with a fence that the text does not have."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _pad(text: str, width: int, left: bool) -> str:
    space = " " * (width - cell_len(text))
    return text + space if left else space + text
