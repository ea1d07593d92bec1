"""Problems of a configuration: the place, the rule, the value, and how to fix it."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from adaptive_eval.endpoints.secrets import remove_patterns

KeyPath = tuple[str | int, ...]
SHOWN_CHARACTERS = 60


class Problem(NamedTuple):
    """A mistake in a configuration, and how to fix it."""

    path: KeyPath
    rule: str
    """The rule that is broken, in words that follow the key: `must be positive`."""
    hint: str = ""
    got: str | None = None
    place: str = ""
    """The place of the value, such as `line 12`."""

    def __str__(self) -> str:
        name = written_path(self.path)
        got = f", but got {self.got}" if self.got is not None else ""
        hint = f"; {self.hint}" if self.hint else ""
        place = f"{self.place}: " if self.place else ""
        return remove_patterns(f"{place}{name + ' ' if name else ''}{self.rule}{got}{hint}")


def written_path(path: KeyPath) -> str:
    """A path as text: `models[0].sampling.temperature`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def shown_value(value: object) -> str:
    """A short text for a value, without the content of mappings and lists."""
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


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """Suggest the most similar of `names`, or return `otherwise` if none is similar."""
    close = get_close_matches(name, names, 1)
    return f"did you mean `{close[0]}`?" if close else otherwise


def problem_list(source: str, problems: Iterable[Problem]) -> str:
    """All problems of a file, one per line."""
    lines = list(dict.fromkeys(str(problem) for problem in problems))
    return "\n".join(
        [f"{source}: {len(lines)} problem{'s' if len(lines) > 1 else ''}", *(f"  {line}" for line in lines)]
    )
