"""Metadata of a rule, policy or objective: its name, its options and its descriptions for people.

An entry stands beside the class it describes, and `registry` lists it. Configuration, JSON schema, starter file,
reports and `plan` take their descriptions from there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Made = TypeVar("Made")
OptionType = Literal["number", "factor", "difference", "margin", "score", "models", "model", "pairs"]
"""number: above 0; factor: from 0.1 to 50; difference, margin: of two scores, above 0; score: a value on the
rubric's scale; models: how many, fewer than all; model: the name of one; pairs: a list of two names each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A configuration key that an entry adds to its name."""

    name: str
    type: OptionType
    description: str
    """One sentence for the schema."""
    example: object
    default: str | None = None
    """The default in words; None if the option is required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[Made]):
    """A built-in rule, policy or objective as listed in the registry."""

    name: str
    make: Callable[..., Made]
    """Called with the options by name, and with any known values that it has parameters for (`registry.make`)."""
    summary: str
    """A few words, for lists."""
    description: str
    """One sentence for people, without its full stop for a policy; {name} is the value of an option."""
    options: tuple[Option, ...] = ()
