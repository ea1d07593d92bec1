"""Texts, numbers and tables for terminals and Markdown, and the speed of a run.

Text from outside is first made safe (`record.lines`). With rich, always put it into `Text` objects, never into markup.

Markdown is readable as source too: columns are as wide as their contents.
"""

import math
import re
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Self

from rich.cells import cell_len, set_cell_size

from adaptive_eval.report.lines import amount, count, duration, safe_line, several

WINDOW_SECONDS = 30.0
GAP = re.compile(r"  +")
"""Gap between two columns."""
NEXT = "Next: "
"""Prefix of the command to type next."""


class Rates:
    """Trials and tokens per second over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def add(self, elapsed: float, trials: int, tokens: int) -> None:
        """Record the progress of the run; only differences count."""
        self._seen.append((elapsed, trials, tokens))
        while self._seen[-1][0] - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def trials(self) -> float:
        """Trials per second."""
        return self._slope(1)

    @property
    def tokens(self) -> float:
        """Tokens per second."""
        return self._slope(2)

    def eta(self, trials_to_go: float | None) -> float | None:
        """Seconds until the trials still needed are done; None while that is unknown."""
        if trials_to_go is None or (speed := self.trials) <= 0.0:
            return None
        return trials_to_go / speed

    def _slope(self, column: int) -> float:
        seen = list(self._seen)  # a copy: the event loop adds while another thread draws
        if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
            return 0.0
        return (seen[-1][column] - seen[0][column]) / (seen[-1][0] - seen[0][0])


def stopping_line(in_flight: int, at_most: float, again: str = "interrupt again to stop at once") -> str:
    """The line after the first Ctrl-C: which requests are awaited, and for how many seconds at most."""
    limit = f", for {duration(at_most)} at most" if math.isfinite(at_most) else ""
    waited = f"waiting for {several(in_flight, 'request')} to be answered and graded{limit}; " if in_flight else ""
    return f"stopping: {waited}{again}"


def cut_middle(text: str, width: int, tail: int) -> str:
    """Shorten a text to `width` columns of a terminal; a longer one keeps its beginning, and its end in at most `tail`
    columns. Some characters take two columns."""
    if cell_len(text) <= width:
        return text
    start = end = text
    while cell_len(end) > tail:
        end = end[1:]
    while cell_len(start) > width - 1 - cell_len(end):
        start = start[:-1]
    return f"{start}…{end}"


def fit_columns(text: str, width: int) -> str:
    """Pad a text to exactly `width` columns, or cut its middle."""
    return set_cell_size(cut_middle(safe_line(text), width, (width - 1) // 2), width)


COMMAND = re.compile(r"([\w-]+:?)? *(adaptive-eval|inspect) ")
"""A line with a command, which may follow an introducing word."""


def wrap_lines(text: str, width: int) -> str:
    """Wrap a text at `width` columns; continuation lines are indented to the last column of a table. A command stays on
    one line, so that it can be copied."""
    lines = []
    for line in text.split("\n"):
        if COMMAND.match(line):
            lines.append(line)
            continue
        last = min(max((gap.end() for gap in GAP.finditer(line)), default=0), width // 2)
        wide = "".join(ch + "\0" * (cell_len(ch) - 1) for ch in line)  # as long as it is wide
        lines += wrap(wide, width, subsequent_indent=last * " ", break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(lines).replace("\0", "")


def number_or_dash(value: float | None, digits: int = 2) -> str:
    """Format a number, or a dash if there is none."""
    return "-" if value is None or math.isnan(value) else "∞" if math.isinf(value) else f"{value:.{digits}f}"


def dollars(value: float, among: Iterable[float] = ()) -> str:
    """Dollars with at least two digits, since runs of small models cost less than a cent."""
    return f"${amount(value, among)}" if value < 1000.0 else f"${count(value)}"


EMPTY_CELLS = ("", "-")
MAX_CELL, MAX_PARAGRAPH = 500, 2000
MENTION = re.compile(r"(?<![\w@])@(?=\w)")
MARKUP = "\\`*_{}[]<>#|!~&"


def markdown_cell(text: str, longest: int = 200) -> str:
    """Escape a text for one line of Markdown, so that nothing in it is markup, a link, a new column, or calls a person
    by name."""
    escaped = "".join(f"\\{ch}" if ch in MARKUP else ch for ch in safe_line(text, longest))
    return MENTION.sub("@\u200b", escaped)


def markdown_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], left_columns: int = 1, *, last: bool = False
) -> str:
    """Render a table of plain texts; the first `left_columns` and, if `last`, the last column are texts, the others
    numbers."""
    texts = {*range(left_columns), *([len(head) - 1] if last else [])}
    cells = [[markdown_cell(cell, MAX_CELL) for cell in line] for line in (head, *rows)]
    first, *others = (f"| {' | '.join(line)} |" for line in padded(cells, texts, 3))
    widths = map(cell_len, first[2:-2].split(" | "))
    rule = [f":{'-' * (width - 1)}" if at in texts else f"{'-' * (width - 1)}:" for at, width in enumerate(widths)]
    return "\n".join([first, f"| {' | '.join(rule)} |", *others])


def padded(lines: Sequence[Sequence[str]], texts: Container[int], least: int = 1) -> Iterator[list[str]]:
    """Cells as wide as their column, at least `least`: texts begin at its left end, numbers end at its right."""
    widths = [max(least, *map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        spaces = [" " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        yield [cell + spaces[at] if at in texts else spaces[at] + cell for at, cell in enumerate(line)]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of plain texts under a title, however it is drawn."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1
    """So many first columns are no numbers."""
    last: bool = False
    """Nor is the last column."""

    @classmethod
    def of(cls, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> Self:
        """A table without the columns that are empty in all rows."""
        columns, cells = informative_columns(head, rows)
        return cls(title, tuple(columns), tuple(map(tuple, cells)), texts)

    def __str__(self) -> str:
        if not self.rows:
            return ""
        lines = [[safe_line(cell, MAX_CELL) for cell in line] for line in (self.head, *self.rows)]
        return "\n".join([self.title, *("  ".join(line).rstrip() for line in padded(lines, range(self.texts)))])


Block = str | Table
"""A paragraph or a table: a document is a title and blocks, which the page draws as well."""


def markdown_blocks(blocks: Iterable[Block], heading: str = "###") -> Iterator[str]:
    """Render paragraphs, and tables under their titles."""
    for block in blocks:
        if isinstance(block, str):
            yield markdown_cell(block, MAX_PARAGRAPH)
        elif block.rows:
            yield f"{heading} {markdown_cell(block.title)}"
            yield markdown_table(block.head, block.rows, block.texts, last=block.last)


def as_markdown(title: str, blocks: Iterable[Block]) -> str:
    """Render a document as Markdown."""
    return "\n\n".join([f"# {markdown_cell(title)}", *markdown_blocks(blocks, "##")]) + "\n"


def as_text(blocks: Iterable[Block]) -> str:
    """Render a document as text for a terminal."""
    parts = (safe_line(block, MAX_PARAGRAPH) if isinstance(block, str) else str(block) for block in blocks)
    return "\n\n".join(filter(None, parts))


def informative_columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Remove the columns that are empty in all rows."""
    lines = list(rows)
    columns = [at for at in range(len(head)) if any(line[at] not in EMPTY_CELLS for line in lines)]
    return [head[at] for at in columns], [[line[at] for at in columns] for line in lines]


def fenced_block(text: str, language: str) -> str:
    """Render a block of code, with a fence that does not occur in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
