"""What is known of a rule, a policy or an objective before it is made: its name, its options, what people are told.

An entry stands beside what it makes, and `registry` lists it. Configuration, JSON schema, starter file, reports and
`plan` have all they say from there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Made = TypeVar("Made")
OptionType = Literal["number", "factor", "difference", "score", "models", "model", "pairs"]
"""number: above 0; factor: from 0.1 to 50; difference: of two scores, above 0; score: a value on the rubric's scale;
models: how many, fewer than all; model: the name of one; pairs: a list of two names each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A key that stands beside the name in the configuration."""

    name: str
    type: OptionType
    says: str
    """One sentence for the schema."""
    example: object
    default: str | None = None
    """What holds where it is not given, in words; None: it must be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[Made]):
    """A built-in rule, policy or objective, as the registry has it."""

    name: str
    make: Callable[..., Made]
    """Given its options by name, and of what the run knows that which it has parameters for (see `registry.make`)."""
    gist: str
    """A few words, for lists."""
    says: str
    """One sentence for people, without its full stop for a policy; {name} is the value of an option."""
    options: tuple[Option, ...] = ()
