"""The SQL queries that read a run: columns of trials by name, and sums over trials."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from adaptive_eval.store.checksums import checksum_in_sql
from adaptive_eval.store.records import (
    AWAITS_THRESHOLDS,
    AWAITS_VERDICT,
    LARGEST_SIZE,
    CellExtent,
    ReplicaSums,
    RoundCount,
    TrialFacts,
    TrialPlace,
)

OUTCOME_COLUMNS = (
    *("model", "question", "trial", "category", "tokens", "usd", "gpu_seconds", "flags", "digest", "size"),
    *("correct", "found", "completion_bpt", "completion_tokens", "latency", "awaits_thresholds", "awaits_verdict"),
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
    damaged: int | None
    """Whether it differs from its checksum; None without one."""
    digest: int | None
    segment: int | None
    """The segment with its texts, if they are not in the ledger."""
    row: int | None
    token_logprobs: bytes | None


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL expressions that differ between databases."""

    column_sql: Mapping[str, str]
    """SQL for names that are not columns of the table of trials."""
    number: Callable[[str], str]
    """Gives the SQL for a numeric signal of a grader, by its name."""
    said: Callable[[str], str]
    """Gives the SQL for whether that signal exists."""
    cell: tuple[str, str]
    """The columns that group trials by model and question."""
    by_number: str
    """The table of trials, read in the order of ids."""
    graded: str
    """Graded trials after an id, as (model, question, category, count) rows, grouped or one by one."""


COLUMN_SQL = {
    "model": "models.name",
    "question": "questions.key",
    "trials": "count(*)",
    "extent": "max(trial) + 1",
    "awaits_thresholds": f"(category IS NULL AND grader_error = '{AWAITS_THRESHOLDS}')",
    "awaits_verdict": f"(category IS NULL AND grader_error = '{AWAITS_VERDICT}')",
    **dict.fromkeys(("damaged", "segment", "row", "token_logprobs"), "NULL"),
}
"""SQL for names that are not columns of the table of trials, the same in every database."""
_KEPT_LOGPROBS = {"token_logprobs": "(SELECT body FROM token_logprobs WHERE id = trials.id)"}
"""Replaces the NULL if the run stores tokens."""
_NAMED = "FROM trials JOIN models ON models.id = model JOIN questions ON questions.id = question "


def _select_columns(names: tuple[str, ...], column_sql: Mapping[str, str]) -> str:
    """The start of a query for these columns, in this order."""
    return f"SELECT {', '.join(column_sql.get(name, f'trials.{name}') for name in names)} {_NAMED}"


LOOKS = "SELECT number, body FROM looks WHERE configuration = (SELECT max(id) FROM configurations) "
FIRST_LOOK = "SELECT number, body FROM looks WHERE number = 0 ORDER BY configuration LIMIT 1"
MOST_JUDGES = 9
"""Largest number of judges in a panel; each has its own signal."""


_TOTAL, _WHOLE = "coalesce(sum({0}), 0.0)", "CAST(sum({0}) AS bigint)"
"""The sum of numbers, 0.0 without rows, and that of integers, which is no integer in every database."""


def _summed_by_replica(sql: Dialect) -> str:
    """The query for sums over trials, by model and replica."""
    column_sql = {
        "replica": "replica",
        "trials": "count(*)",
        "retries": _WHOLE.format("attempts - 1"),
        "prompt_tokens": _WHOLE.format("prompt_tokens"),
        "completion_tokens": _WHOLE.format("completion_tokens"),
        "latency": "sum(latency)",
        "timed": "count(ttft)",
        "ttft": _TOTAL.format("ttft"),
        "tokens": _WHOLE.format("tokens"),
        "usd": "sum(usd)",
        "gpu_seconds": "sum(gpu_seconds)",
        "last": "max(id)",
        "at": "max(at)",
    }
    parts = ", ".join(f"{column_sql[name]} AS {name}" for name in ReplicaSums._fields[1:])
    return (
        f"SELECT models.name, {', '.join(f'summed.{name}' for name in ReplicaSums._fields[1:])} "
        f"FROM (SELECT model, {parts} FROM {sql.by_number} WHERE id > ? AND id <= ? GROUP BY model, trials.replica) "
        "AS summed JOIN models ON models.id = summed.model ORDER BY models.id, summed.replica"
    )


class Queries:
    """The queries that read a run and differ between databases."""

    def __init__(self, sql: Dialect, *, beside: str = "", tokens: bool = False) -> None:
        """`beside` joins further tables, `tokens` says whether tokens are stored."""
        column_sql = {**sql.column_sql, **(_KEPT_LOGPROBS if tokens else {})}
        by_cell, of_cell = ", ".join(sql.cell), ", ".join((*sql.cell, "round", "category"))
        by_name = "FROM trials JOIN models ON models.id = model"
        prompt, completion, usd, gpu_seconds, seconds = (
            _TOTAL.format(sql.number(f"judge_{one}")) for one in JUDGE_USED
        )
        agreements = ", ".join(f"avg({sql.number(f'agreement_{judge}')})" for judge in range(1, MOST_JUDGES + 1))
        self.outcomes = f"{_select_columns(OUTCOME_COLUMNS, column_sql)}{beside}ORDER BY trials.id"
        self.trials = f"{_select_columns(TrialRow._fields, column_sql)}{beside}"
        self.facts = f"{_select_columns(TrialFacts._fields, column_sql)}WHERE category IS NOT NULL ORDER BY trials.id"
        self.judge_use = (
            f"SELECT count(*), {prompt}, {completion}, {usd}, {gpu_seconds}, {seconds}, {agreements} FROM trials "
            f"WHERE {sql.said('judge_prompt_tokens')}"
        )
        self.comparisons = (
            f"SELECT {sql.number('order_dependent')}, {sql.number('prefers_first')}, count(*) FROM trials "
            f"WHERE {sql.said('prefers_first')} GROUP BY 1, 2 ORDER BY 1, 2"
        )
        self.grading_uses = (
            f"SELECT name, count(*), {prompt} + {completion}, {usd}, {gpu_seconds} {by_name} "
            f"WHERE {sql.said('judge_prompt_tokens')} GROUP BY name ORDER BY name"
        )
        self.places = f"{_select_columns(TrialPlace._fields, column_sql)}ORDER BY trials.id"
        self.cells = (
            f"{_select_columns(CellExtent._fields, column_sql)}WHERE trials.id <= ? AND round <= ? "
            f"GROUP BY {by_cell} ORDER BY {by_cell}"
        )
        self.spending = (
            f"SELECT max(at), count(*), {_WHOLE.format('tokens')}, sum(usd), sum(gpu_seconds) "
            "FROM trials WHERE id > ? AND id <= ? GROUP BY (id - 1 - ?) * ? / ? ORDER BY max(id)"
        )
        self.graded = sql.graded
        self.round_counts = (
            f"{_select_columns(RoundCount._fields, column_sql)}WHERE category IS NOT NULL "
            f"GROUP BY {of_cell} ORDER BY {of_cell}"
        )
        self.sums = _summed_by_replica(sql)


# a text longer than LARGEST_SIZE is stored compressed, as a BLOB
_SIZE = f"CASE typeof({{0}}) WHEN 'blob' THEN {LARGEST_SIZE} ELSE ifnull(length(CAST({{0}} AS BLOB)), 0) END"
_SIZES = f"{_SIZE.format('text')} + {_SIZE.format('reasoning')}"
_FLAG = "CASE json_type(signals, '$.{0}') WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"
_CHECKED = {"damaged": f"(SELECT crc FROM trial_checks WHERE id = trials.id) <> {checksum_in_sql('trials', 'trials.')}"}
_SEGMENTED = {"size": f"ifnull(moved.size, {_SIZES})", "segment": "moved.segment", "row": "moved.row"}
_SQLITE = Dialect(
    column_sql=COLUMN_SQL
    | {"size": _SIZES, "correct": _FLAG.format("is_correct"), "found": _FLAG.format("has_answer")},
    number="json_extract(signals, '$.{}')".format,
    said="json_type(signals, '$.{}') IS NOT NULL".format,
    cell=("model", "question"),
    # by the index on model and question all of it would be read for a few new trials
    by_number="trials NOT INDEXED",
    # one by one: grouping millions of rows in SQLite takes longer than counting them in Python
    graded="SELECT model, question, category, 1 FROM trials NOT INDEXED WHERE id > ? AND category IS NOT NULL",
)


def sqlite_queries(*, checked: bool, beside: Collection[str]) -> Queries:
    """The queries of a run in SQLite that has these tables beside that of trials; `checked` if it has checksums."""
    column_sql = {**_SQLITE.column_sql, **(_CHECKED if checked else {}), **(_SEGMENTED if "moved" in beside else {})}
    moved = "LEFT JOIN moved ON moved.id = trials.id " if "moved" in beside else ""
    sql = replace(_SQLITE, column_sql=column_sql)
    return Queries(sql, beside=moved, tokens="token_logprobs" in beside)
