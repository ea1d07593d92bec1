"""The queries that read a run: the columns of rows by their names, and what is summed over the trials."""

from collections.abc import Callable, Mapping
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
"""What a judge's verdict has used: signals, after `judge_`."""


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


@dataclass(frozen=True, slots=True)
class Dialect:
    """SQL of one kind of database, where they differ."""

    meant: Mapping[str, str]
    """What the names of columns stand for that have none of their own in the table of trials."""
    number: Callable[[str], str]
    """A number that a grader has said, by its name."""
    said: Callable[[str], str]
    """Whether it has said that at all."""
    is_tie: str
    """Whether the verdict of a comparison is a tie."""
    total: str
    """A sum of {0} that is 0 of nothing."""
    whole: str
    """A sum of whole numbers {0}."""
    cell: tuple[str, str]
    """What trials of one model and question are grouped by."""
    by_number: str
    """The table of trials, read in the order of their numbers."""
    graded: str
    """Graded trials after one, with how many they are: by model, question and category, or one by one."""


MEANT = {
    "model": "models.name",
    "question": "questions.key",
    "trials": "count(*)",
    "extent": "max(trial) + 1",
    "awaits_thresholds": f"(category IS NULL AND grader_error = '{AWAITS_THRESHOLDS}')",
    "awaits_verdict": f"(category IS NULL AND grader_error = '{AWAITS_VERDICT}')",
    **dict.fromkeys(("damaged", "segment", "row", "token_logprobs"), "NULL"),
}
"""SQL for names that are no columns of the table of trials, the same in every database."""
_KEPT_LOGPROBS = {"token_logprobs": "(SELECT body FROM token_logprobs WHERE id = trials.id)"}
"""Where some answers have their tokens with them."""
_NAMED = "FROM trials JOIN models ON models.id = model JOIN questions ON questions.id = question "


def _selected(names: tuple[str, ...], meant: Mapping[str, str]) -> str:
    """The start of a query for these columns, in this order: that of the fields of a row."""
    return f"SELECT {', '.join(meant.get(name, f'trials.{name}') for name in names)} {_NAMED}"


LOOKS = "SELECT number, body FROM looks WHERE configuration = (SELECT max(id) FROM configurations) "
FIRST_LOOK = "SELECT number, body FROM looks WHERE number = 0 ORDER BY configuration LIMIT 1"
MOST_JUDGES = 9
"""Of a panel: each has a signal of its own."""


def _summed_by_replica(sql: Dialect) -> str:
    """Trials by model and replica."""
    meant = {
        "replica": "replica",
        "trials": "count(*)",
        "retries": sql.whole.format("attempts - 1"),
        "prompt_tokens": sql.whole.format("prompt_tokens"),
        "completion_tokens": sql.whole.format("completion_tokens"),
        "latency": "sum(latency)",
        "timed": "count(ttft)",
        "ttft": sql.total.format("ttft"),
        "tokens": sql.whole.format("tokens"),
        "usd": "sum(usd)",
        "gpu_seconds": "sum(gpu_seconds)",
        "last": "max(id)",
        "at": "max(at)",
    }
    parts = ", ".join(f"{meant[name]} AS {name}" for name in ReplicaSums._fields[1:])
    return (
        f"SELECT models.name, {', '.join(f'summed.{name}' for name in ReplicaSums._fields[1:])} "
        f"FROM (SELECT model, {parts} FROM {sql.by_number} WHERE id > ? AND id <= ? GROUP BY model, trials.replica) "
        "AS summed JOIN models ON models.id = summed.model ORDER BY models.id, summed.replica"
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


def queries_in(sql: Dialect, *, beside: str = "", tokens: bool = False) -> Queries:
    """The queries of a run in a database; `beside` joins what its columns are beside those of trials, `tokens` says
    whether answers have their tokens with them."""
    meant = {**sql.meant, **(_KEPT_LOGPROBS if tokens else {})}
    by_cell, of_cell = ", ".join(sql.cell), ", ".join((*sql.cell, "round", "category"))
    by_name = "FROM trials JOIN models ON models.id = model"
    prompt, completion, usd, gpu_seconds, seconds = (sql.total.format(sql.number(f"judge_{one}")) for one in JUDGE_USED)
    agreements = ", ".join(f"avg({sql.number(f'agreement_{judge}')})" for judge in range(1, MOST_JUDGES + 1))
    return Queries(
        outcomes=f"{_selected(OUTCOME_COLUMNS, meant)}{beside}ORDER BY trials.id",
        trials=f"{_selected(TrialRow._fields, meant)}{beside}",
        facts=f"{_selected(TrialFacts._fields, meant)}WHERE category IS NOT NULL ORDER BY trials.id",
        judge_use=(
            f"SELECT count(*), {prompt}, {completion}, {usd}, {gpu_seconds}, {seconds}, {agreements} FROM trials "
            f"WHERE {sql.said('judge_prompt_tokens')}"
        ),
        comparisons=(
            f"SELECT {sql.number('order_dependent')}, {sql.number('prefers_first')}, NOT {sql.is_tie}, "
            f"{sql.number('judge_seconds')} > 0, count(*) FROM trials WHERE {sql.said('prefers_first')} "
            "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        ),
        grading_uses=(
            f"SELECT name, count(*), {prompt} + {completion}, {usd}, {gpu_seconds} {by_name} "
            f"WHERE {sql.said('judge_prompt_tokens')} GROUP BY name ORDER BY name"
        ),
        places=f"{_selected(TrialPlace._fields, meant)}ORDER BY trials.id",
        cells=(
            f"{_selected(CellExtent._fields, meant)}WHERE trials.id <= ? AND round <= ? "
            f"GROUP BY {by_cell} ORDER BY {by_cell}"
        ),
        spending=(
            f"SELECT max(at), count(*), {sql.whole.format('tokens')}, sum(usd), sum(gpu_seconds) "
            "FROM trials WHERE id > ? AND id <= ? GROUP BY (id - 1 - ?) * ? / ? ORDER BY max(id)"
        ),
        graded=sql.graded,
        round_counts=(
            f"{_selected(RoundCount._fields, meant)}WHERE category IS NOT NULL GROUP BY {of_cell} ORDER BY {of_cell}"
        ),
        sums=_summed_by_replica(sql),
    )


# what is longer than the size that counts is stored compressed, as a BLOB
_SIZE = f"CASE typeof({{0}}) WHEN 'blob' THEN {LARGEST_SIZE} ELSE ifnull(length(CAST({{0}} AS BLOB)), 0) END"
_SIZES = f"{_SIZE.format('text')} + {_SIZE.format('reasoning')}"
_SAID = "CASE json_type(signals, '$.{0}') WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"
_CHECKED = {"damaged": f"(SELECT crc FROM trial_checks WHERE id = trials.id) <> {checksum_in_sql('trials', 'trials.')}"}
_SEGMENTED = {"size": f"ifnull(moved.size, {_SIZES})", "segment": "moved.segment", "row": "moved.row"}
_SQLITE = Dialect(
    meant=MEANT | {"size": _SIZES, "correct": _SAID.format("is_correct"), "found": _SAID.format("has_answer")},
    number="json_extract(signals, '$.{}')".format,
    said="json_type(signals, '$.{}') IS NOT NULL".format,
    is_tie="(json_extract(signals, '$.verdict') = 'tie')",
    total="total({0})",
    whole="sum({0})",
    cell=("model", "question"),
    # the index by model and question would be read from one end to the other for a few new trials
    by_number="trials NOT INDEXED",
    # one by one: to bring millions into groups takes longer than to count them where they come
    graded="SELECT model, question, category, 1 FROM trials NOT INDEXED WHERE id > ? AND category IS NOT NULL",
)


def sqlite_queries(*, checked: bool, segmented: bool, tokens: bool) -> Queries:
    """The queries of a run in SQLite; the flags say whether it has checksums, segments, and tokens of answers."""
    meant = {**_SQLITE.meant, **(_CHECKED if checked else {}), **(_SEGMENTED if segmented else {})}
    beside = "LEFT JOIN moved ON moved.id = trials.id " if segmented else ""
    return queries_in(replace(_SQLITE, meant=meant), beside=beside, tokens=tokens)
