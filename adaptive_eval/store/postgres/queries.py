"""The queries that read a run from PostgreSQL, where they differ from those for SQLite."""

from dataclasses import replace

from adaptive_eval.store.queries import (
    AGREEMENTS,
    KEPT_LOGPROBS,
    OUTCOME_COLUMNS,
    TrialRow,
    selected,
    sqlite_queries,
    summed_by_replica,
)
from adaptive_eval.store.records import AWAITS_THRESHOLDS, AWAITS_VERDICT, LARGEST_SIZE, CellExtent, RoundCount


def _number(name: str) -> str:
    """A number that a grader has said. Its words are no JSON for PostgreSQL, which knows no NUL and no half pair."""
    found = f"""substring(signals from '"{name}":([-+0-9.eE]+|true|false)[,}}]')"""
    return f"(CASE {found} WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 ELSE ({found})::double precision END)"


def _said(name: str) -> str:
    found = f"""substring(signals from '"{name}":(true|false)[,}}]')"""
    return f"CASE {found} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"


def _total(name: str) -> str:
    return f"coalesce(sum({_number(name)}), 0.0)"


def _size(column: str) -> str:
    """SQL for the counted size of a text; a compressed one has the largest."""
    plain = f"get_byte({column}, 0) = 0"
    return f"CASE WHEN {column} IS NULL THEN 0 WHEN {plain} THEN length({column}) - 2 ELSE {LARGEST_SIZE} END"


_MEANT = {
    "size": f"({_size('text')} + {_size('reasoning')})",
    "correct": _said("is_correct"),
    "found": _said("has_answer"),
    "awaits_thresholds": f"(category IS NULL AND grader_error = '{AWAITS_THRESHOLDS}')",
    "awaits_verdict": f"(category IS NULL AND grader_error = '{AWAITS_VERDICT}')",
    "damaged": "NULL",
}
_JUDGED = "signals IS NOT NULL AND strpos(signals, '\"judge_prompt_tokens\":') > 0"
_CELL = "GROUP BY models.id, questions.id"

QUERIES = replace(
    sqlite_queries(checked=False, segmented=False),
    outcomes=selected(OUTCOME_COLUMNS, meant=_MEANT) + "ORDER BY trials.id",
    trials=selected(TrialRow._fields, meant=_MEANT),
    judge_use=(
        f"SELECT count(*), {_total('judge_prompt_tokens')}, {_total('judge_completion_tokens')}, "
        f"{_total('judge_usd')}, {_total('judge_gpu_seconds')}, {_total('judge_seconds')}, "
        + ", ".join(f"avg({_number(f'agreement_{number}')})" for number in range(1, len(AGREEMENTS) + 1))
        + f" FROM trials WHERE {_JUDGED}"
    ),
    comparisons=(
        f"SELECT {_number('order_dependent')}, {_number('prefers_first')}, "
        f'strpos(signals, \'"verdict":"tie"\') = 0, {_number("judge_seconds")} > 0, count(*) FROM trials '
        "WHERE strpos(signals, '\"prefers_first\":') > 0 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
    ),
    grading_uses=(
        f"SELECT name, count(*), {_total('judge_prompt_tokens')} + {_total('judge_completion_tokens')}, "
        f"{_total('judge_usd')}, {_total('judge_gpu_seconds')} FROM trials JOIN models ON models.id = model "
        f"WHERE {_JUDGED} GROUP BY name ORDER BY name"
    ),
    cells=selected(CellExtent._fields)
    + f"WHERE trials.id <= ? AND round <= ? {_CELL} ORDER BY models.id, questions.id",
    spending=(
        "SELECT max(at), count(*), sum(tokens)::bigint, sum(usd), sum(gpu_seconds) "
        "FROM trials WHERE id > ? AND id <= ? GROUP BY (id - 1 - ?) * ? / ? ORDER BY max(id)"
    ),
    graded=(
        "SELECT model, question, category, count(*) FROM trials "
        "WHERE id > ? AND category IS NOT NULL GROUP BY model, question, category"
    ),
    round_counts=(
        selected(RoundCount._fields)
        + f"WHERE category IS NOT NULL {_CELL}, round, category ORDER BY models.id, questions.id, round, category"
    ),
    sums=summed_by_replica(total="coalesce(sum({0}), 0.0)", whole="sum({0})::bigint", source="trials"),
)
QUERIES_WITH_TOKENS = replace(QUERIES, trials=selected(TrialRow._fields, meant=_MEANT | KEPT_LOGPROBS))
"""The queries of a run that has a place for the tokens of answers."""
