"""The queries that read a run: the columns of rows by their names, and what is summed over the trials."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from adaptive_eval.store import checksums
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

# what is longer than the size that counts is stored compressed, as a BLOB
_SIZE = f"CASE typeof({{0}}) WHEN 'blob' THEN {LARGEST_SIZE} ELSE ifnull(length(CAST({{0}} AS BLOB)), 0) END"
_SAID = "CASE json_type(signals, '$.{0}') WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"


OUTCOME_COLUMNS = (
    *("model", "question", "trial", "category", "tokens", "usd", "gpu_seconds", "flags", "digest", "size"),
    *("correct", "found", "completion_bpt", "completion_tokens", "latency", "awaits_thresholds", "awaits_verdict"),
)
"""The columns of a trial without its texts."""


class TrialRow(NamedTuple):
    """The columns of a trial with its texts."""

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
    """None: it has no checksum."""
    digest: int | None
    segment: int | None
    """Where its texts lie, if not here."""
    row: int | None
    token_logprobs: bytes | None


_MEANT = {
    "model": "models.name",
    "question": "questions.key",
    "size": f"{_SIZE.format('text')} + {_SIZE.format('reasoning')}",
    "correct": _SAID.format("is_correct"),
    "found": _SAID.format("has_answer"),
    "trials": "count(*)",
    "extent": "max(trial) + 1",
    "awaits_thresholds": f"category IS NULL AND grader_error = '{AWAITS_THRESHOLDS}'",
    "awaits_verdict": f"category IS NULL AND grader_error = '{AWAITS_VERDICT}'",
    "damaged": "(SELECT crc FROM trial_checks WHERE id = trials.id) <> "
    + checksums.checksum_in_sql("trials", "trials."),
    "segment": "NULL",
    "row": "NULL",
    "token_logprobs": "NULL",
}
"""SQL for names that are no columns of the table of trials."""
_MEANT_SEGMENTED = {"size": f"ifnull(moved.size, {_MEANT['size']})", "segment": "moved.segment", "row": "moved.row"}
"""`_MEANT` where texts may lie in segments."""
KEPT_LOGPROBS = {"token_logprobs": "(SELECT body FROM token_logprobs WHERE id = trials.id)"}
"""`_MEANT` where some answers have their tokens with them."""
_NAMED = "FROM trials JOIN models ON models.id = model JOIN questions ON questions.id = question "


def selected(
    names: tuple[str, ...], *, checked: bool = True, segmented: bool = False, meant: Mapping[str, str] | None = None
) -> str:
    """The start of a query for these columns, in this order: that of the fields of a row.

    `meant` is what names stand for in another database than SQLite.
    """
    found = (
        _MEANT | (_MEANT_SEGMENTED if segmented else {}) | ({} if checked else {"damaged": "NULL"}) | dict(meant or {})
    )
    beside = "LEFT JOIN moved ON moved.id = trials.id " if segmented else ""
    return f"SELECT {', '.join(found.get(name, f'trials.{name}') for name in names)} {_NAMED}{beside}"


AGREEMENTS = [f"avg(json_extract(signals, '$.agreement_{number}'))" for number in range(1, 10)]
"""Of as many judges as there may be."""
_JUDGE_USE = (
    "SELECT count(*), total(json_extract(signals, '$.judge_prompt_tokens')), "
    "total(json_extract(signals, '$.judge_completion_tokens')), total(json_extract(signals, '$.judge_usd')), "
    "total(json_extract(signals, '$.judge_gpu_seconds')), total(json_extract(signals, '$.judge_seconds')), "
    f"{', '.join(AGREEMENTS)} FROM trials "
    "WHERE json_type(signals, '$.judge_prompt_tokens') IS NOT NULL"
)
_COMPARISONS = (
    "SELECT json_extract(signals, '$.order_dependent'), json_extract(signals, '$.prefers_first'), "
    "json_extract(signals, '$.verdict') <> 'tie', json_extract(signals, '$.judge_seconds') > 0, count(*) FROM trials "
    "WHERE json_type(signals, '$.prefers_first') IS NOT NULL GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
)
_GRADING_USES = (
    "SELECT name, count(*), total(json_extract(signals, '$.judge_prompt_tokens')) + "
    "total(json_extract(signals, '$.judge_completion_tokens')), total(json_extract(signals, '$.judge_usd')), "
    "total(json_extract(signals, '$.judge_gpu_seconds')) FROM trials JOIN models ON models.id = model "
    "WHERE json_type(signals, '$.judge_prompt_tokens') IS NOT NULL GROUP BY name"
)
LOOKS = "SELECT number, body FROM looks WHERE configuration = (SELECT max(id) FROM configurations) "
FIRST_LOOK = "SELECT number, body FROM looks WHERE number = 0 ORDER BY configuration LIMIT 1"
_SPENDING = (
    "SELECT max(at) AS at, count(*) AS trials, sum(tokens) AS tokens, sum(usd) AS usd, sum(gpu_seconds) AS gpu_seconds "
    "FROM trials WHERE id > ? AND id <= ? GROUP BY (id - 1 - ?) * ? / ? ORDER BY max(id)"
)


def summed_by_replica(total: str, whole: str, source: str) -> str:
    """Trials by model and replica: `total` is a sum that is 0 of nothing, `whole` one of whole numbers."""
    meant = {
        "replica": "replica",
        "trials": "count(*)",
        "retries": whole.format("attempts - 1"),
        "prompt_tokens": whole.format("prompt_tokens"),
        "completion_tokens": whole.format("completion_tokens"),
        "latency": "sum(latency)",
        "timed": "count(ttft)",
        "ttft": total.format("ttft"),
        "tokens": whole.format("tokens"),
        "usd": "sum(usd)",
        "gpu_seconds": "sum(gpu_seconds)",
        "last": "max(id)",
        "at": "max(at)",
    }
    parts = ", ".join(f"{meant[name]} AS {name}" for name in ReplicaSums._fields[1:])
    return (
        f"SELECT models.name, {', '.join(f'summed.{name}' for name in ReplicaSums._fields[1:])} "
        f"FROM (SELECT model, {parts} FROM {source} WHERE id > ? AND id <= ? GROUP BY model, trials.replica) AS summed "
        "JOIN models ON models.id = summed.model ORDER BY models.id, summed.replica"
    )


@dataclass(frozen=True, slots=True)
class Queries:
    """SQL that reads a run, except for statements that are the same in every database."""

    outcomes: str
    trials: str
    facts: str
    judge_use: str
    comparisons: str
    grading_uses: str
    places: str
    cells: str
    spending: str
    graded: str
    round_counts: str
    sums: str


def sqlite_queries(*, checked: bool, segmented: bool, tokens: bool = False) -> Queries:
    """SQL for a run in SQLite; the flags say whether it has checksums, segments, and tokens of answers."""
    kept = KEPT_LOGPROBS if tokens else {}
    return Queries(
        outcomes=selected(OUTCOME_COLUMNS, segmented=segmented) + "ORDER BY trials.id",
        trials=selected(TrialRow._fields, checked=checked, segmented=segmented, meant=kept),
        facts=selected(TrialFacts._fields) + "WHERE category IS NOT NULL ORDER BY trials.id",
        judge_use=_JUDGE_USE,
        comparisons=_COMPARISONS,
        grading_uses=_GRADING_USES,
        places=selected(TrialPlace._fields) + "ORDER BY trials.id",
        cells=selected(CellExtent._fields) + "WHERE trials.id <= ? AND round <= ? GROUP BY model, question",
        spending=_SPENDING,
        # one by one: to bring millions into groups takes longer than to count them where they come
        graded="SELECT model, question, category, 1 FROM trials NOT INDEXED WHERE id > ? AND category IS NOT NULL",
        round_counts=selected(RoundCount._fields)
        + "WHERE category IS NOT NULL GROUP BY model, question, round, category",
        # by number: the index by model and question would be read from one end to the other for a few new trials
        sums=summed_by_replica(total="total({0})", whole="sum({0})", source="trials NOT INDEXED"),
    )
