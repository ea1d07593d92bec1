"""What is wrong with a configuration: where, which value, the rule, what was got, and how to mend it."""

from collections.abc import Iterable
from typing import NamedTuple

from adaptive_eval.endpoints.secrets import redacted

KeyPath = tuple[str | int, ...]
SHOWN_CHARACTERS = 60


class Problem(NamedTuple):
    """One mistake in a configuration: where, what must hold, and how to mend it."""

    path: KeyPath
    rule: str
    """What must hold, or what is the matter; it follows the name of the value."""
    mend: str = ""
    got: str | None = None
    place: str = ""
    """Where it stands, such as `line 12`."""

    def __str__(self) -> str:
        name = written_path(self.path)
        got = f", but got {self.got}" if self.got is not None else ""
        mend = f"; {self.mend}" if self.mend else ""
        place = f"{self.place}: " if self.place else ""
        return redacted(f"{place}{name + ' ' if name else ''}{self.rule}{got}{mend}")


def written_path(path: KeyPath) -> str:
    """A path as people write it: `models[0].sampling.temperature`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def shown_value(value: object) -> str:
    """A short account of a value, which never spells out a mapping: there may be anything in it."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def problem_list(source: str, problems: Iterable[Problem]) -> str:
    """All problems of one file, a line each."""
    lines = list(dict.fromkeys(str(problem) for problem in problems))
    return "\n".join(
        [f"{source}: {len(lines)} problem{'s' if len(lines) > 1 else ''}", *(f"  {line}" for line in lines)]
    )
