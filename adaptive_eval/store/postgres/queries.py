"""The queries that read a run from PostgreSQL, in its own SQL."""

from adaptive_eval.store.queries import MEANT, Dialect, queries_in
from adaptive_eval.store.records import LARGEST_SIZE


def _number(name: str) -> str:
    """A number that a grader has said. Its words are no JSON for PostgreSQL, which knows no NUL and no half pair."""
    found = f"""substring(signals from '"{name}":([-+0-9.eE]+|true|false)[,}}]')"""
    return f"(CASE {found} WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 ELSE ({found})::double precision END)"


def _said(name: str) -> str:
    found = f"""substring(signals from '"{name}":(true|false)[,}}]')"""
    return f"CASE {found} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"


def _size(column: str) -> str:
    """SQL for the counted size of a text; a compressed one has the largest."""
    plain = f"get_byte({column}, 0) = 0"
    return f"CASE WHEN {column} IS NULL THEN 0 WHEN {plain} THEN length({column}) - 2 ELSE {LARGEST_SIZE} END"


_POSTGRES = Dialect(
    meant=MEANT
    | {
        "size": f"({_size('text')} + {_size('reasoning')})",
        "correct": _said("is_correct"),
        "found": _said("has_answer"),
    },
    number=_number,
    said=lambda name: f"strpos(signals, '\"{name}\":') > 0",
    is_tie='(strpos(signals, \'"verdict":"tie"\') > 0)',
    total="coalesce(sum({0}), 0.0)",
    whole="sum({0})::bigint",
    cell=("models.id", "questions.id"),
    by_number="trials",
    graded=(
        "SELECT model, question, category, count(*) FROM trials "
        "WHERE id > ? AND category IS NOT NULL GROUP BY model, question, category"
    ),
)
QUERIES, QUERIES_WITH_TOKENS = (queries_in(_POSTGRES, tokens=tokens) for tokens in (False, True))
"""The queries of a run, without a place for the tokens of answers and with one."""
