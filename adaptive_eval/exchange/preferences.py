"""Ranks models by votes between two answers, from a table (CSV, JSONL, Parquet) with one row a vote.

model_a, model_b    the models shown on the first and on the second side
winner              a or model_a, b or model_b, the name of one of the two, or tie
question            the question asked; without it all votes count as independent
"""

import re
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.errors import ConfigError
from adaptive_eval.exchange.samples import LogFile
from adaptive_eval.exchange.tables.reader import Row, table_rows
from adaptive_eval.questions.load import as_text
from scorio.rank import Preferences, preferences

SIDES = {"a": 1.0, "model_a": 1.0, "b": 0.0, "model_b": 0.0}
TIES = re.compile(r"tie\b.*|draw|both|both_?bad|neither|none")
"""Words for a tie, such as `tie (bothbad)` of arenas."""
MOST_MODELS = 500
"""Limited since all pairs are kept in memory."""


class RankedPreferences(NamedTuple):
    """The ranked models of a table of votes."""

    models: tuple[str, ...]
    votes: tuple[int, ...]
    """Number of votes on each model."""
    total: int
    ties: int
    questions: int | None
    """Number of questions; None if the table does not name them."""
    found: Preferences


def rank_preferences(path: Path) -> RankedPreferences:
    """Rank the models of a table of votes; raises `LogError` for a row that is not a vote."""
    file = LogFile(path)
    numbers: dict[str, int] = {}
    asked: dict[str, int] = {}
    first, second, won, question, nameless = [], [], [], [], ""
    with closing(table_rows(file)) as rows:
        for place, row in rows:
            columns = {re.sub(r"\W+", "_", key.strip().casefold()): value for key, value in row.items()}
            a, b = (_required_text(file, place, columns, side) for side in ("model_a", "model_b"))
            if a == b:
                raise file.refuse(f"has {a:.80} on both sides; a vote is between two models", place)
            won.append(_first_side_score(file, place, columns, a, b))
            first.append(numbers.setdefault(a, len(numbers)))
            second.append(numbers.setdefault(b, len(numbers)))
            of = as_text(columns.get("question", columns.get("question_id"))).strip()
            nameless = nameless if of else nameless or place
            question.append(asked.setdefault(of, len(asked)))
            if len(numbers) > MOST_MODELS:
                raise file.refuse(f"has more than {MOST_MODELS} models", place)
    if not won:
        raise file.refuse("has no row")
    if nameless and len(asked) > 1:
        raise file.refuse("must have a question, as other rows have", nameless)
    models = tuple(numbers)
    try:
        found = preferences(first, second, won, None if nameless else question)
    except ValueError:
        raise ConfigError(_unconnected_message(path, models, first, second)) from None
    votes = [0] * len(models)
    for one in (*first, *second):
        votes[one] += 1
    return RankedPreferences(models, tuple(votes), len(won), won.count(0.5), None if nameless else len(asked), found)


def _required_text(file: LogFile, place: str, columns: Row, side: str) -> str:
    name = as_text(columns.get(side)).strip()
    if not name:
        has = ", ".join(sorted(columns)) or "none"
        raise file.refuse(f"must have {side}, but has the columns {has}; a vote has model_a, model_b, winner", place)
    return name


def _first_side_score(file: LogFile, place: str, columns: Row, a: str, b: str) -> float:
    given = _required_text(file, place, columns, "winner")
    word = given.casefold()
    meant = {won for name, won in ((a, 1.0), (b, 0.0)) if name == given}
    meant |= {SIDES[word]} if word in SIDES else set()
    meant |= {0.5} if TIES.fullmatch(word) else set()
    if len(meant) != 1:
        known = f"model_a, model_b, tie, or the name of one of the two ({a:.80}, {b:.80})"
        raise file.refuse(f"winner must be {known}, and no word for both, but got {given:.80}", place)
    return meant.pop()


def _unconnected_message(path: Path, models: tuple[str, ...], first: list[int], second: list[int]) -> str:
    """The message about models that are not connected with the first one by votes."""
    met = {0}
    while more := {j for i, j in zip(first + second, second + first, strict=True) if i in met} - met:
        met |= more
    here = ", ".join(models[at][:80] for at in sorted(met)[:5])
    apart = ", ".join(name[:80] for at, name in enumerate(models) if at not in met)
    return f"{path}: {apart:.300} never met {here}, not even by way of others; rank the groups one by one"
