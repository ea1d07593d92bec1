"""The queries that read a run from PostgreSQL."""

from adaptive_eval.store.queries import COLUMN_SQL, Dialect, queries_in
from adaptive_eval.store.records import LARGEST_SIZE


def _numeric_signal(name: str) -> str:
    """SQL for a numeric signal, by regular expression: PostgreSQL's JSON allows no NUL and no lone surrogate."""
    found = f"""substring(signals from '"{name}":([-+0-9.eE]+|true|false)[,}}]')"""
    return f"(CASE {found} WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 ELSE ({found})::double precision END)"


def _boolean_signal(name: str) -> str:
    found = f"""substring(signals from '"{name}":(true|false)[,}}]')"""
    return f"CASE {found} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"


def _size(column: str) -> str:
    """SQL for the counted size of a text, which is the largest one for a compressed text."""
    plain = f"get_byte({column}, 0) = 0"
    return f"CASE WHEN {column} IS NULL THEN 0 WHEN {plain} THEN length({column}) - 2 ELSE {LARGEST_SIZE} END"


_POSTGRES = Dialect(
    column_sql=COLUMN_SQL
    | {
        "size": f"({_size('text')} + {_size('reasoning')})",
        "correct": _boolean_signal("is_correct"),
        "found": _boolean_signal("has_answer"),
    },
    number=_numeric_signal,
    said=lambda name: f"strpos(signals, '\"{name}\":') > 0",
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
"""The queries of a run without and with the table of answers' tokens."""
