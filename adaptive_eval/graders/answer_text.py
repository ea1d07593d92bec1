r"""Helpers with which graders read an answer: the text after the reasoning, the last box, the last match of a pattern.

A box is `\boxed{...}` or `\fbox{...}`, with braces nested to any depth; the last one counts.
"""

import re
from collections import deque

BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
OPEN = re.compile(r"\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
BARE = re.compile(r"\s*(-?\d+(?:[.,/]\d+)*)")
MAX_BOX = 4_000
"""Longest content of a box in characters; if none closes within, the text was cut off or the brace is no box."""
MAX_TRIED = 20
"""How many boxes are examined, starting with the last."""


def last_box(text: str) -> str | None:
    r"""Content of the last box that is closed and not empty; None if there is no such box.

    Empty boxes repeat the instruction. Escaped braces, as in `\boxed{\{1, 2\}}`, do not count. Around a number the
    braces may be missing: `\boxed 5`.
    """
    for start in reversed([match.end() for match in BOX.finditer(text)][-MAX_TRIED:]):
        inside = _box_content(text, start)
        if inside is not None and inside.strip():
            return inside.strip()
    return None


def _box_content(text: str, start: int) -> str | None:
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
"""Marks that begin a model's reasoning, with the patterns that end it."""
BEGINS = re.compile(rf"\s*({'|'.join(map(re.escape, REASONING))})")


def final_text(text: str) -> str:
    """The text without a model's reasoning, which some servers leave in it.

    Reasoning that never ends leaves no answer, just as when the server removes it.
    """
    if not BEGINS.match(text):  # the model's chat template may have begun it
        text = text.rpartition(THINK_END)[2]
    while (begun := BEGINS.match(text)) is not None:
        end = last_match(REASONING[begun[1]], text)
        text = "" if end is None else text[end.end() :]
    return text.removesuffix("<|return|>")


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last of the matches found from the left."""
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None
