"""Common parts of configuration sections: the base class, the error for invalid values, and number types.

Sections have no "before" validators on lists or mappings: the file is validated as JSON in strict mode. Such a
validator would validate strict Python instead, in which a list is not a tuple.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from adaptive_eval.base.imports import SPECIFICATION

DURATION = re.compile(
    r"(?:(?P<d>\d+(?:\.\d+)?)d)?(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
)
SECONDS_IN = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
StopOnAlarm = Literal["all", "any", "never"]
"""Which alarms stop a run."""


class Section(BaseModel):
    """A part of the configuration: frozen, strict, and without unknown keys.

    Its validator is built on first use, since most sections are only parts of others. The docstrings of its fields
    become descriptions in the JSON schema (`config.json_schema`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


def config_error(rule: str, hint: str) -> PydanticCustomError:
    """The error for a value that breaks a rule; `rule` follows the value's name, `hint` says what to do."""
    return PydanticCustomError("rule", "{rule}; {hint}", {"rule": rule, "hint": hint})


def _specifies(name: str) -> str:
    if not re.fullmatch(SPECIFICATION, name):
        raise config_error("must name an object to import", "write it as package.module:attribute")
    return name


Specification = Annotated[str, Field(json_schema_extra={"pattern": SPECIFICATION}), AfterValidator(_specifies)]
"""An object in the folder of the configuration or in an installed package: `package.module:attribute`."""


def _share(value: Any) -> Any:
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*%\s*", value)):
        return float(match[1]) / 100.0
    return value


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = DURATION.fullmatch(value.replace(" ", ""))
    if not match or not any(match.groups()):
        raise config_error("must be a number of seconds or a duration", "write it like 2h30m, 45m, 90s or 1d12h")
    return sum(float(amount) * SECONDS_IN[unit] for unit, amount in match.groupdict().items() if amount)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


_NUMBER_OR_TEXT = {"anyOf": [{"type": "number"}, {"type": "string"}]}

Share = Annotated[float, BeforeValidator(_share), WithJsonSchema(_NUMBER_OR_TEXT)]
"""A difference of scores: 0.02, or "2%" for the same."""

Seconds = Annotated[float, BeforeValidator(_seconds), WithJsonSchema(_NUMBER_OR_TEXT)]
"""A time: a number of seconds, or "2h30m"."""

Count = Annotated[int, BeforeValidator(_whole)]
"""An integer, which may be written 2e6."""


MILLION = 1e6
MAX_PRICE = 1e9
"""Sums of larger ones would overflow."""


class Price(Section):
    """US dollars per million tokens."""

    input: float = Field(ge=0, le=MAX_PRICE)
    """Price of prompt tokens."""
    cached_input: float | None = Field(None, ge=0)
    """Price of prompt tokens that the server reports as read from its cache; default: that of `input`."""
    output: float = Field(ge=0, le=MAX_PRICE)
    """Price of completion tokens."""

    @property
    def is_zero(self) -> bool:
        """Whether tokens cost nothing, as on the user's own server."""
        return self.input == self.output == 0.0

    @field_validator("cached_input")
    @classmethod
    def _is_no_surcharge(cls, price: float | None, info: ValidationInfo) -> float | None:
        # caps reserve prompts at the price of input
        if price is not None and price > info.data.get("input", price):
            raise config_error("must not exceed the price of input", "remove it if cached tokens cost as much")
        return price

    def usd(self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0.0) -> float:
        """The cost of these tokens; `cached_tokens` of the prompt were read from a cache."""
        discount = 0.0 if self.cached_input is None else cached_tokens * (self.input - self.cached_input)
        return (prompt_tokens * self.input + completion_tokens * self.output - discount) / MILLION
