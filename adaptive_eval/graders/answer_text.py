r"""How every grader reads an answer: what comes after the thoughts, and the last place where a pattern matches.

A box is `\boxed{...}` or `\fbox{...}`, with braces nested to any depth; the last one counts.
"""

import re
from collections import deque

BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
OPEN = re.compile(r"\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
BARE = re.compile(r"\s*(-?\d+(?:[.,/]\d+)*)")
MAX_BOX = 4_000
"""Characters that a box may hold; where none closes within, the text was cut off, or the brace was never meant to."""
MAX_TRIED = 20
"""How many boxes are looked into, from the last one on: what came before them was not the last word."""


def last_box(text: str) -> str | None:
    r"""Content of the last box that is closed and not empty; None if there is no such box.

    Empty boxes repeat the instruction. An escaped brace, as in `\boxed{\{1, 2\}}`, opens and closes nothing. A box may
    also be written without braces, around a number: `\boxed 5`.
    """
    for start in reversed([match.end() for match in BOX.finditer(text)][-MAX_TRIED:]):
        inside = _inside(text, start)
        if inside is not None and inside.strip():
            return inside.strip()
    return None


def _inside(text: str, start: int) -> str | None:
    """The text between the brace that opens at `start` and the one that closes it."""
    opened = OPEN.match(text, start)
    if opened is None:
        bare = BARE.match(text, start)
        return bare[1] if bare is not None else None
    depth = 1
    for match in BRACE.finditer(text, opened.end(), opened.end() + MAX_BOX):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return text[opened.end() : match.start()]
    return None


THINK_END = "</think>"
REASONING = {
    "<think>": re.compile(THINK_END),
    "<thinking>": re.compile("</thinking>"),
    "[THINK]": re.compile(r"\[/THINK\]"),  # Mistral
    "<|channel|>": re.compile(r"<\|channel\|>final\b.{0,40}?<\|message\|>"),  # gpt-oss
}
"""Marks that begin a model's reasoning, and what ends it."""
BEGINS = re.compile(rf"\s*({'|'.join(map(re.escape, REASONING))})")


def final_text(text: str) -> str:
    """The text after a model's reasoning, where the server left that in the text.

    Reasoning that never ends leaves no answer, just as where the server takes it out.
    """
    if not BEGINS.match(text):  # the template of a model may have begun it
        text = text.rpartition(THINK_END)[2]
    while (begun := BEGINS.match(text)) is not None:
        end = last_match(REASONING[begun[1]], text)
        text = "" if end is None else text[end.end() :]
    return text.removesuffix("<|return|>")


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last of the matches that a search from the left finds."""
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None
