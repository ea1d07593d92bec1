r"""Helpers to read an answer: the text after the reasoning, the last box, the last match of a pattern, JSON in a text.

A box is `\boxed{...}` or `\fbox{...}`, with braces nested to any depth; the last one counts.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
OPEN = re.compile(r"\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
BARE = re.compile(r"\s*(-?\d+(?:[.,/]\d+)*)")
MAX_BOX = 4_000
"""Maximum characters in a box; a box that does not close within them was cut off, or is not a box."""
MAX_BOXES_TRIED = 20
"""Maximum number of boxes to examine, starting with the last."""


def last_box(text: str) -> str | None:
    r"""Content of the last closed box that is not empty; None if there is no such box.

    Empty boxes repeat the instruction. Escaped braces, as in `\boxed{\{1, 2\}}`, do not open or close a box. A number
    needs no braces: `\boxed 5`.
    """
    for start in reversed([match.end() for match in BOX.finditer(text)][-MAX_BOXES_TRIED:]):
        inside = _box_content(text, start)
        if inside is not None and inside.strip():
            return inside.strip()
    return None


def _box_content(text: str, start: int) -> str | None:
    """The text between the brace at `start` and its closing brace."""
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
"""Marks at the start of a model's reasoning, and the patterns at its end."""
BEGINS = re.compile(rf"\s*({'|'.join(map(re.escape, REASONING))})")


def final_text(text: str) -> str:
    """The text without a model's reasoning, which some servers leave in.

    If the reasoning never ends, there is no answer, just as if the server had removed it.
    """
    if not BEGINS.match(text):  # the chat template may contain the opening mark
        text = text.rpartition(THINK_END)[2]
    while (begun := BEGINS.match(text)) is not None:
        end = last_match(REASONING[begun[1]], text)
        text = "" if end is None else text[end.end() :]
    return text.removesuffix("<|return|>")


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of a pattern, scanning from the left."""
    matches = deque(pattern.finditer(text), maxlen=1)
    return matches[0] if matches else None


MAX_BRACKETS = 1_000
"""Maximum number of opening brackets at which no value begins."""
MAX_TRIED = 2**20
"""Maximum number of characters to read in vain, over all brackets: they may be nested, each before a long text."""


def embedded_json(
    text: str, opening: re.Pattern[str], object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Iterator[tuple[Any, int]]:
    """Each outermost JSON value in a text that begins with such a bracket, with the position of its end."""
    decoder, at, failed, tried = json.JSONDecoder(object_pairs_hook=object_pairs_hook), 0, 0, 0
    while failed < MAX_BRACKETS and tried <= MAX_TRIED and (bracket := opening.search(text, at)) is not None:
        at = bracket.start()
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated"):
                tried += error.pos - at
            else:  # it does not say how far it has read
                tried += len(text) - at
            at, failed = at + 1, failed + 1
        else:
            yield value, at
