"""The base class of events."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

Json = Mapping[str, object]
OMIT_IF_NONE = "left out where it is None"
MAX_VALUE_CHARS = 80


class Change(NamedTuple):
    """A changed setting."""

    path: str
    was: object = None
    now: object = None

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.was)} → {_shown(self.now)}"


def _shown(value: object) -> str:
    if value is None:
        return "default"
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"


def optional_field() -> Any:
    """An optional field, which is not stored if it is None."""
    return field(default=None, metadata={OMIT_IF_NONE: True})


@dataclass(frozen=True, slots=True)
class Event:
    """Base class of all events of a run."""

    KIND: ClassVar[str]
    """Its name in the store."""
    at: float = field(default=0.0, kw_only=True)
    """Seconds since 1970; set by the store when it is committed."""

    def __init_subclass__(cls, kind: str | None = None) -> None:
        if kind is not None:
            cls.KIND = kind

    @property
    def kind(self) -> str:
        """Its name in the store."""
        return self.KIND

    def body(self) -> dict[str, object]:
        """The fields as they are stored."""
        stored = {field_.name: field_.metadata for field_ in fields(self) if field_.name != "at"}
        values = {name: getattr(self, name) for name in stored}
        return {name: value for name, value in values.items() if value is not None or OMIT_IF_NONE not in stored[name]}
