"""Objects in the JSON of others: values may have any type, and parsers drop one of two with the same key."""

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


def as_object(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[dict[str, Any]]:
    """The objects in a value, which should be a list of them."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
