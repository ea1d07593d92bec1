"""Objects of JSON in which a key stands twice: of two values, parsers drop one without a word."""

from typing import Any


class RepeatedKey(KeyError):
    """A key stands twice in an object; its text is that key."""


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, as `object_pairs_hook` of `json.loads`; raises `RepeatedKey`."""
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        seen = set[str]()
        for name, _ in pairs:
            if name in seen:
                raise RepeatedKey(name)
            seen.add(name)
    return parsed
