"""The graders that read an answer by its key, as one section."""

from typing import Annotated

from pydantic import Field

from adaptive_eval.graders import choice, mathematics, numeric, structured, text

ByKey = text.Exact | choice.Choice | numeric.Numeric | text.Regex | text.Contains | mathematics.Math | structured.Json
"""A new grader that reads answers by their key has its line here."""
KeyedGrader = Annotated[ByKey, Field(discriminator="kind")]
"""Whichever it is, by its `kind`."""
