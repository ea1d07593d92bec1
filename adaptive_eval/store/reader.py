"""Reads a stored run: for a resume, for reports and monitors (also while it runs), and for regrading."""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self, cast

from pydantic import TypeAdapter, ValidationError

from adaptive_eval.base.errors import StoreError
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer, Signal
from adaptive_eval.notes import events_of_kind, parse_event
from adaptive_eval.notes.event import Event, Json
from adaptive_eval.notes.grading import VerdictsWasted
from adaptive_eval.storage.header import RunHeader
from adaptive_eval.store import queries
from adaptive_eval.store.forms import FIRST_SECOND, LAST_SECOND
from adaptive_eval.store.queries import Row
from adaptive_eval.store.records import (
    NO_GRADING,
    CellExtent,
    ComparisonCount,
    GradingUse,
    HeldTime,
    JudgeUse,
    ReplicaSums,
    RoundCount,
    Spending,
    StoredLook,
    StoredOutcome,
    StoredSettings,
    TrialFacts,
    TrialPlace,
    TrialRecord,
    total_bits,
    wasted_use,
)
from adaptive_eval.store.roster import Roster
from adaptive_eval.store.rows import json_object, unpack_json, unpack_logprobs, unpack_text
from adaptive_eval.store.run_database import RunDatabase, damaged
from adaptive_eval.store.summing import (
    Counts,
    align_with_roster,
    all_spending,
    all_sums,
    count_cells,
    thin_out,
)

LARGE = 200_000
"""Trials from which on a run is large."""
MOST_ROUNDS = 2**31 - 1
"""The highest number that a round may have."""


class RunReader:
    """Reads everything stored of a run, as immutable values."""

    def __init__(self, directory: Path, database: RunDatabase) -> None:
        self.directory = directory
        self._database, self._rows = database, database.rows

    @classmethod
    @contextmanager
    def intact(cls, directory: Path, *, whole: bool = True) -> Iterator[Self]:
        """Open the run in `directory` for one consistent read; raises `StoreError` if it is damaged.

        Without `whole`, large runs are not checked beforehand.
        """
        with closing(cls.open(directory)) as reader, reader.consistent_read():
            if whole or not reader.is_large:
                reader.require_intact()
            yield reader

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the run in `directory`; another process may be writing it."""
        return cls(directory, RunDatabase.open_to_read(directory))

    @classmethod
    @contextmanager
    def if_begun(cls, directory: Path) -> Iterator[Self | None]:
        """Open the run in `directory` as a context; None if no run was begun there."""
        database = RunDatabase.open_if_begun(directory)
        if database is None:
            yield None
            return
        with closing(cls(directory, database)) as reader:
            yield reader

    def close(self) -> None:
        """Close a reader that was opened by `open`."""
        self._database.close()

    def consistent_read(self) -> AbstractContextManager[None]:
        """A context in which all reads see the same state, whatever the run commits meanwhile."""
        return self._database.consistent_read()

    def header(self) -> RunHeader:
        """The header of the run with its newest configuration."""
        return RunHeader(
            name=str(self._value("name")),
            configuration=self.configurations()[-1],
            meaning=json_object(self._value("meaning"), "what the run means"),
            models={
                str(name): json_object(meaning, "what a model's trials mean")
                for name, meaning in self._rows("SELECT name, meaning FROM models ORDER BY id")
            },
            questions={
                str(key): json_object(body, "a stored question")
                for key, body in self._rows("SELECT key, body FROM questions ORDER BY id")
            },
        )

    def configurations(self) -> list[Json]:
        """Every configuration with which the run was started, the newest last."""
        bodies = self._rows("SELECT body FROM configurations ORDER BY id")
        return [json_object(body, "the stored configuration") for (body,) in bodies]

    def newest_configuration_id(self) -> int:
        """The id of the configuration to which new looks belong."""
        ((number,),) = self._rows("SELECT max(id) FROM configurations")
        return int(number)

    @property
    def created(self) -> float:
        """When the run was begun, in seconds since 1970."""
        return self._seconds("created", FIRST_SECOND)

    @property
    def elapsed(self) -> float:
        """Seconds the run has been active, over all its starts."""
        return self._seconds("elapsed")

    def held_times(self) -> dict[str, HeldTime]:
        """How long each model has held its servers."""
        held = json_object(self._value("held"), "for how long servers were held")
        try:
            return TypeAdapter(dict[str, HeldTime]).validate_python(held)
        except ValidationError as error:
            raise self._damaged("the times for which servers were held are not numbers") from error

    def largest_costs(self) -> dict[str, Cost]:
        """The largest tokens, USD and GPU seconds of any stored trial, by model."""
        rows = self._rows(
            "SELECT name, max(tokens), max(usd), max(gpu_seconds) FROM trials JOIN models ON models.id = model "
            "GROUP BY name"
        )
        return {name: Cost(*most) for name, *most in rows}

    def trial_count(self) -> int:
        """The number of stored trials."""
        ((count,),) = self._rows("SELECT count(*) FROM trials")
        return int(count)

    def outcomes(self) -> Iterator[StoredOutcome]:
        """Every trial without its texts, in the order of commitment."""
        # in the order of OUTCOME_COLUMNS, by position: there may be millions of rows
        for (
            model, question, trial, category, tokens, usd, gpu_seconds, flags, digest, size, correct, found, bpt,
            completion_tokens, latency, awaits_verdict,
        ) in self._rows(queries.OUTCOMES):  # fmt: skip
            yield StoredOutcome(
                model,
                question,
                trial,
                category,
                Cost(tokens, usd, gpu_seconds),
                flags or "",
                digest,
                size,
                _optional_bool(correct),
                _optional_bool(found),
                total_bits(bpt, completion_tokens),
                latency,
                completion_tokens,
                bool(awaits_verdict),
            )

    def in_flight(self) -> dict[str, int]:
        """The number of trials of each model that were sent and have no answer yet."""
        rows = self._rows("SELECT name, trials FROM asked_for JOIN models ON models.id = model WHERE trials > 0")
        return {str(name): int(count) for name, count in rows}

    def trial_facts(self) -> Iterator[TrialFacts]:
        """Every graded trial with all that a rubric may use, in the order of commitment."""
        return map(TrialFacts._make, self._rows(queries.FACTS))

    def judge_use(self) -> JudgeUse | None:
        """Usage of the judge on these answers; None if there is none."""
        (row,) = self._rows(queries.JUDGE_USE)
        used, agreements = row[: -queries.MOST_JUDGES], row[-queries.MOST_JUDGES :]
        return replace(JudgeUse(*used), agreements=tuple(agreements)) if row[0] else None

    def comparisons(self) -> list[ComparisonCount]:
        """Counts of a judge's comparisons of two answers, by their result."""
        rows = self._rows(queries.COMPARISONS)
        return [ComparisonCount(float(dependent), float(first), int(count)) for dependent, first, count in rows]

    def grading_uses(self) -> dict[str, GradingUse]:
        """Usage of a judge or a verifier, by model."""
        rows = self._rows(queries.GRADING_USES)
        uses = {str(name): GradingUse(int(answers), Cost(int(tokens), *rest)) for name, answers, tokens, *rest in rows}
        for event in events_of_kind(self.events(), VerdictsWasted):
            uses[event.model] = uses.get(event.model, NO_GRADING).plus(wasted_use(event))
        return uses

    def places(self) -> Iterator[TrialPlace]:
        """The round of every trial, and the flags of its answer, in the order of commitment."""
        return map(TrialPlace._make, self._rows(queries.PLACES))

    def cells(self, rows: int, *, first_round: bool = False) -> Iterator[CellExtent]:
        """The extent of each cell among the trials with ids up to `rows`, or among those of them in round 0."""
        return map(CellExtent._make, self._rows(queries.CELLS, rows, 0 if first_round else MOST_ROUNDS))

    @property
    def newest_trial_id(self) -> int:
        """The id of the trial that was committed last; 0 before the first."""
        ((newest,),) = self._rows("SELECT coalesce(max(id), 0) FROM trials")
        return int(newest)

    @property
    def newest_at(self) -> float:
        """When the newest trial or event was stored, in seconds since 1970; 0 before the first."""
        newest = "SELECT at FROM {0} WHERE id = (SELECT max(id) FROM {0})".format
        return max((float(at) for (at,) in self._rows(f"{newest('trials')} UNION ALL {newest('events')}")), default=0.0)

    def trials(self, which: Literal["all", "ungraded"] = "all") -> Iterator[TrialRecord]:
        """Trials with their texts, in the order of commitment, one at a time since texts are long.

        "ungraded" leaves out trials without an answer, which no grader can grade.
        """
        condition = "WHERE category IS NULL " if which == "ungraded" else ""
        for row in self._rows(f"{queries.TRIALS}{condition}ORDER BY trials.id"):
            record = self._record(row)
            if which == "all" or "unanswered" not in record.answer.signals:
                yield record

    def model_trials(self, model: str) -> Iterator[TrialRecord]:
        """The trials of one model with their texts, question by question."""
        for row in self._rows(f"{queries.TRIALS}WHERE models.name = ? ORDER BY question, trial", model):
            yield self._record(row)

    def cell(self, model: str, question: str, after: int = -1) -> Iterator[TrialRecord]:
        """The trials of one model and question with numbers above `after`, in ascending order."""
        condition = "WHERE models.name = ? AND questions.key = ? AND trial > ? ORDER BY trial"
        yield from map(self._record, self._rows(queries.TRIALS + condition, model, question, after))

    def latest_from(self, model: str, replica: str) -> TrialRecord:
        """The trial that was committed last from one replica of a model."""
        condition = "WHERE models.name = ? AND replica = ? ORDER BY trials.id DESC LIMIT 1"
        return self._record(next(iter(self._rows(queries.TRIALS + condition, model, replica))))

    def sums(self, after: int = 0) -> list[ReplicaSums]:
        """Sums over the trials with ids above `after`, by model and replica."""
        return all_sums(self._database, after)

    def looks(self, first: int = 0) -> list[StoredLook]:
        """The looks of the run, from number `first` on."""
        return list(self._looks(queries.LOOKS + "AND number >= ? ORDER BY number", first))

    def most_looks(self) -> int:
        """How many looks were taken."""
        ((most,),) = self._rows(queries.MOST_LOOKS)
        return int(most)

    def capped_opening(self) -> bool | None:
        """Whether caps allowed only `trials.min` in the first round; None before the first look."""
        first = next(self._looks(queries.FIRST_LOOK), None)
        return None if first is None else "capped_opening" in first.body

    def latest_look(self) -> StoredLook | None:
        """The last look; None before the first."""
        return next(self._looks(queries.LOOKS + "ORDER BY number DESC LIMIT 1"), None)

    def counts(self, roster: Roster, categories: int, after: int = 0) -> Counts:
        """Counts[model, question, category] of the graded trials with ids above `after`, in the order of the roster."""
        models, questions = self.ids("models", "name"), self.ids("questions", "key")
        cells = count_cells(self._rows(queries.GRADED, after))
        return align_with_roster(cells, models, questions, roster, categories)

    @property
    def is_large(self) -> bool:
        """Whether the run has so many trials that checking or replaying all of them takes long."""
        return self.newest_trial_id >= LARGE

    def round_counts(self) -> Iterator[RoundCount]:
        """The number of graded trials by model, question, round and category."""
        return map(RoundCount._make, self._rows(queries.ROUND_COUNTS))

    def count_until(self, at: float) -> int:
        """The number of trials that were stored by a moment."""
        ((count,),) = self._rows("SELECT count(*) FROM trials WHERE at <= ?", at)
        return int(count)

    def look_times(self) -> dict[int, float]:
        """When each look was first taken, in seconds since 1970."""
        return {number: at for number, at in self._rows(queries.LOOK_TIMES)}

    def settings(self) -> list[StoredSettings]:
        """Every configuration of the run, with the looks that were taken under it."""
        looks: defaultdict[int, dict[int, float]] = defaultdict(dict)
        for configuration, number, at in self._rows("SELECT configuration, number, at FROM looks"):
            looks[configuration][number] = at
        rows = [(int(key), float(at)) for key, at in self._rows("SELECT id, at FROM configurations ORDER BY id")]
        ends = [at for _, at in rows[1:]] + [math.inf]
        return [
            StoredSettings(body, looks.get(key, {}), end)
            for (key, _), body, end in zip(rows, self.configurations(), ends, strict=True)
        ]

    def spending(self, steps: int) -> list[Spending]:
        """Cumulative spending at about `steps` evenly spaced trials, in the order of commitment."""
        return thin_out(all_spending(self._database, steps), steps)

    def events(self) -> list[Event]:
        """All events of the run."""
        rows = self._rows("SELECT kind, body, at FROM events ORDER BY id")
        try:
            return [parse_event(kind, json_object(body, f"an event of the kind {kind}"), at) for kind, body, at in rows]
        except StoreError as error:
            raise StoreError(
                f"{self.directory}: {error}. Restore a copy of the run, or start over with --fresh"
            ) from error

    def ids(self, table: Literal["models", "questions"], column: Literal["name", "key"]) -> dict[str, int]:
        """The tables' ids of models or questions, in the order in which they joined the run."""
        return {str(key): int(number) for number, key in self._rows(f"SELECT id, {column} FROM {table} ORDER BY id")}

    def _value(self, key: str) -> str | float:
        ((value,),) = self._rows("SELECT value FROM run WHERE key = ?", key)
        return cast(str | float, value)

    def _seconds(self, key: str, least: float = 0.0) -> float:
        try:
            seconds = float(self._value(key))
        except (TypeError, ValueError) as error:
            raise self._damaged(f"run {key} is no time") from error
        if not least <= seconds < LAST_SECOND:
            raise self._damaged(f"run {key} is no time")
        return seconds

    def _looks(self, query: str, *parameters: object) -> Iterator[StoredLook]:
        for number, body in self._rows(query, *parameters):
            yield StoredLook(number, unpack_json(body))

    def require_intact(self) -> None:
        """Raise `StoreError` with the first damage that can be found."""
        self._database.require_intact()

    def _record(self, values: Row) -> TrialRecord:
        row = queries.TrialRow._make(values)
        if not row.is_intact:
            raise self._damaged(f"trial {row.trial} of {row.model} on {row.question} is not what was written")
        return _record(row)

    def _damaged(self, what: str) -> StoreError:
        return damaged(self.directory, self._database.where, what)


def _optional_bool(value: int | None) -> bool | None:
    """Convert SQLite's 0 and 1."""
    return None if value is None else bool(value)


def _record(row: queries.TrialRow) -> TrialRecord:
    answer = Answer(
        text=unpack_text(row.text) or "",
        finish_reason=row.finish_reason,
        seed=row.seed,
        replica=row.replica,
        latency=row.latency,
        reasoning=unpack_text(row.reasoning),
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        ttft=row.ttft,
        attempts=row.attempts,
        completion_bpt=row.completion_bpt,
        prompt_bpt=row.prompt_bpt,
        signals=cast(frozenset[Signal], frozenset((row.flags or "").split())),
        token_logprobs=None if row.token_logprobs is None else unpack_logprobs(row.token_logprobs),
    )
    return TrialRecord(
        model=row.model,
        question=row.question,
        trial=row.trial,
        round=row.round,
        answer=answer,
        category=row.category,
        signals=json_object(row.signals, "what a grader has said") if row.signals else {},
        extracted=row.extracted,
        grader_error=row.grader_error,
        cost=Cost(row.tokens, row.usd, row.gpu_seconds),
    )
