"""The graders that compare an answer with its key, combined in one configuration section."""

from collections.abc import Mapping
from typing import Literal, get_args

from adaptive_eval.graders import choice, mathematics, numeric, structured, text
from adaptive_eval.graders.types import GraderOptions

ByKey = text.Exact | choice.Choice | numeric.Numeric | text.Regex | text.Contains | mathematics.Math | structured.Json
"""Add a new grader that compares answers with their key here."""
KeyedKind = Literal["exact", "choice", "numeric", "contains", "math", "json"]
"""The kinds without required options."""
KEYED_GRADERS: Mapping[KeyedKind, type[GraderOptions]] = {
    kind: grader for grader in get_args(ByKey) if (kind := grader.model_fields["kind"].default) in get_args(KeyedKind)
}
