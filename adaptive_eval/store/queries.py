"""The SQL queries that read a run: columns of trials by name, and sums over trials."""

from typing import Any, NamedTuple

from adaptive_eval.store.checksums import checksum_sql
from adaptive_eval.store.records import (
    AWAITS_VERDICT,
    LARGEST_SIZE,
    CellExtent,
    ReplicaSums,
    RoundCount,
    TrialFacts,
    TrialPlace,
)

Row = tuple[Any, ...]
OUTCOME_COLUMNS = (
    *("model", "question", "trial", "category", "tokens", "usd", "gpu_seconds", "flags", "digest", "size"),
    *("correct", "found", "completion_bpt", "completion_tokens", "latency", "awaits_verdict"),
)
"""The columns of a trial without its texts."""
JUDGE_USED = ("prompt_tokens", "completion_tokens", "usd", "gpu_seconds", "seconds")
"""Signals with the usage of a judge's verdict, without their prefix `judge_`."""


class TrialRow(NamedTuple):
    """A row of a trial with its texts."""

    model: str
    question: str
    trial: int
    round: int
    seed: int
    category: int | None
    signals: str | None
    extracted: str | None
    grader_error: str | None
    flags: str | None
    text: str | bytes | None
    reasoning: str | bytes | None
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    latency: float
    ttft: float | None
    replica: str
    attempts: int
    completion_bpt: float | None
    prompt_bpt: float | None
    tokens: int
    usd: float
    gpu_seconds: float
    token_logprobs: bytes | None
    is_intact: int
    """Whether it is what was written."""


_STANDING = (
    "FROM looks WHERE NOT EXISTS (SELECT 1 FROM looks AS later "
    "WHERE later.configuration > looks.configuration AND later.number <= looks.number) "
)
"""Looks that stand: those under a later configuration go on from them, or replace them where they begin earlier."""
LOOKS = f"SELECT number, body {_STANDING}"
LOOK_TIMES = f"SELECT number, at {_STANDING}"
MOST_LOOKS = f"SELECT coalesce(max(number) + 1, 0) {_STANDING}"
FIRST_LOOK = "SELECT number, body FROM looks WHERE number = 0 ORDER BY configuration LIMIT 1"
MOST_JUDGES = 9
"""Largest number of judges in a panel; each has its own signal."""


# a text longer than LARGEST_SIZE is stored compressed, as a BLOB
_SIZE = f"CASE typeof({{0}}) WHEN 'blob' THEN {LARGEST_SIZE} ELSE ifnull(length(CAST({{0}} AS BLOB)), 0) END"
_FLAG = "CASE json_type(signals, '$.{0}') WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"
_COLUMNS = {
    "model": "models.name",
    "question": "questions.key",
    "trials": "count(*)",
    "extent": "max(trial) + 1",
    "awaits_verdict": f"(category IS NULL AND grader_error = '{AWAITS_VERDICT}')",
    "size": f"{_SIZE.format('text')} + {_SIZE.format('reasoning')}",
    "correct": _FLAG.format("is_correct"),
    "found": _FLAG.format("has_answer"),
    "is_intact": f"{checksum_sql('trials')} = trials.checksum",
    "token_logprobs": "(SELECT body FROM token_logprobs WHERE id = trials.id)",
}
"""SQL for names that are not columns of the table of trials."""
_NAMED = "FROM trials JOIN models ON models.id = model JOIN questions ON questions.id = question "
_TOTAL = "coalesce(sum({0}), 0.0)"
"""The sum of numbers, 0.0 without rows."""
_NUMBER = "json_extract(signals, '$.{}')"
"""A numeric signal of a grader, by its name."""
_EXISTS = "json_type(signals, '$.{}') IS NOT NULL"


def _select_columns(names: tuple[str, ...]) -> str:
    """The start of a query for these columns, in this order."""
    return f"SELECT {', '.join(_COLUMNS.get(name, f'trials.{name}') for name in names)} {_NAMED}"


def _sums_by_replica() -> str:
    """The query for sums over trials, by model and replica."""
    column_sql = {
        "replica": "replica",
        "trials": "count(*)",
        "retries": "sum(attempts - 1)",
        "prompt_tokens": "sum(prompt_tokens)",
        "completion_tokens": "sum(completion_tokens)",
        "latency": "sum(latency)",
        "timed": "count(ttft)",
        "ttft": _TOTAL.format("ttft"),
        "tokens": "sum(tokens)",
        "usd": "sum(usd)",
        "gpu_seconds": "sum(gpu_seconds)",
        "last": "max(id)",
        "at": "max(at)",
    }
    parts = ", ".join(f"{column_sql[name]} AS {name}" for name in ReplicaSums._fields[1:])
    # by the index on model and question all of it would be read for a few new trials
    return (
        f"SELECT models.name, {', '.join(f'summed.{name}' for name in ReplicaSums._fields[1:])} "
        f"FROM (SELECT model, {parts} FROM trials NOT INDEXED WHERE id > ? AND id <= ? GROUP BY model, replica) "
        "AS summed JOIN models ON models.id = summed.model ORDER BY models.id, summed.replica"
    )


SUMS = _sums_by_replica()
SPENDING = (
    "SELECT max(at), count(*), sum(tokens), sum(usd), sum(gpu_seconds) "
    "FROM trials WHERE id > ? AND id <= ? GROUP BY (id - 1 - ?) * ? / ? ORDER BY max(id)"
)
# one by one: grouping millions of rows in SQLite takes longer than counting them in Python
GRADED = "SELECT model, question, category, 1 FROM trials NOT INDEXED WHERE id > ? AND category IS NOT NULL"
"""Graded trials after an id, as (model, question, category, count) rows."""
_JUDGE_TOTALS = [_TOTAL.format(_NUMBER.format(f"judge_{one}")) for one in JUDGE_USED]
_AGREEMENTS = [f"avg({_NUMBER.format(f'agreement_{judge}')})" for judge in range(1, MOST_JUDGES + 1)]
JUDGE_USE = (
    f"SELECT count(*), {', '.join([*_JUDGE_TOTALS, *_AGREEMENTS])} FROM trials "
    f"WHERE {_EXISTS.format('judge_prompt_tokens')}"
)
COMPARISONS = (
    f"SELECT {_NUMBER.format('order_dependent')}, {_NUMBER.format('prefers_first')}, count(*) FROM trials "
    f"WHERE {_EXISTS.format('prefers_first')} GROUP BY 1, 2 ORDER BY 1, 2"
)
GRADING_USES = (
    "SELECT name, count(*), {} + {}, {}, {} FROM trials JOIN models ON models.id = model ".format(*_JUDGE_TOTALS)
    + f"WHERE {_EXISTS.format('judge_prompt_tokens')} GROUP BY name ORDER BY name"
)
OUTCOMES = f"{_select_columns(OUTCOME_COLUMNS)}ORDER BY trials.id"
FACTS = f"{_select_columns(TrialFacts._fields)}WHERE category IS NOT NULL ORDER BY trials.id"
PLACES = f"{_select_columns(TrialPlace._fields)}ORDER BY trials.id"
CELLS = (
    f"{_select_columns(CellExtent._fields)}WHERE trials.id <= ? AND round <= ? "
    "GROUP BY model, question ORDER BY model, question"
)
ROUND_COUNTS = (
    f"{_select_columns(RoundCount._fields)}WHERE category IS NOT NULL "
    "GROUP BY model, question, round, category ORDER BY model, question, round, category"
)
TRIALS = _select_columns(TrialRow._fields)
