"""The graders that compare an answer with its key, as one configuration section."""

from typing import Annotated

from pydantic import Field

from adaptive_eval.graders import choice, mathematics, numeric, structured, text

ByKey = text.Exact | choice.Choice | numeric.Numeric | text.Regex | text.Contains | mathematics.Math | structured.Json
"""A new grader that compares answers with their key is added here."""
KeyedGrader = Annotated[ByKey, Field(discriminator="kind")]
"""One of these graders, selected by its `kind`."""
