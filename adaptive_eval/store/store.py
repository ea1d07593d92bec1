"""The durable store of one run: a directory with a database, written by one thread of one process at a time."""

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.files import closed_on_error
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.notes.answers import AnswersLost
from adaptive_eval.notes.event import Change, Event
from adaptive_eval.notes.lives import SettingsChanged
from adaptive_eval.storage.header import RunHeader
from adaptive_eval.store.checksums import Stored, checksum, insert_into, sealed, set_columns
from adaptive_eval.store.database import is_run
from adaptive_eval.store.locate import make_directory
from adaptive_eval.store.reader import RunReader
from adaptive_eval.store.records import CellExtent, CommitBatch, Regrade, TrialKey, TrialRecord
from adaptive_eval.store.redaction import Kept, redact_batch, redact_event, redact_grade
from adaptive_eval.store.rows import (
    INSERT_LOGPROBS,
    INSERT_TRIAL,
    dump_json,
    insert_configuration,
    insert_models,
    insert_questions,
    pack_json,
    pack_logprobs,
    trial_row,
    valid_text,
    write_events,
    write_run,
)
from adaptive_eval.store.run_database import RunDatabase
from adaptive_eval.store.same_meaning import differences, require_same_meaning

NEXT_SECONDS = 1e-6
"""Between two records, where a clock says that the second came before the first."""
# a resume takes the looks under its settings again, and most are unchanged
_INSERT_LOOK = (
    f"{insert_into('looks')} ON CONFLICT (configuration, number) DO UPDATE "
    f"{set_columns('looks', {'body': 'excluded.body', 'at': 'excluded.at'})} WHERE looks.body <> excluded.body"
)
_FORGET_TOKENS = (
    "DELETE FROM token_logprobs WHERE id = (SELECT id FROM trials WHERE model = ? AND question = ? AND trial = ?)"
)
_ASKED_FOR = (
    f"{insert_into('asked_for')} ON CONFLICT (model) DO UPDATE "
    f"{set_columns('asked_for', {'trials': 'asked_for.trials + excluded.trials'})}"
)
_NEW_GRADE = {
    "category": "?1",
    "signals": "?2",
    "extracted": "?3",
    "grader_error": "?4",
    "tokens": "tokens + ?5",
    "usd": "usd + ?6",
    "gpu_seconds": "gpu_seconds + ?7",
}
_REGRADE = f"UPDATE trials {set_columns('trials', _NEW_GRADE)} WHERE model = ?8 AND question = ?9 AND trial = ?10"
_OPENING = (
    f"UPDATE trials {set_columns('trials', {'round': '0'})} "
    "WHERE model = ? AND question = ? AND trial < ? AND round > 0"
)
_SET_VALUE = f"UPDATE run {set_columns('run', {'value': '?2'})} WHERE key = ?1"
_SET_QUESTION = f"UPDATE questions {set_columns('questions', {'body': '?2'})} WHERE key = ?1"


class OpenedStore(NamedTuple):
    """A store that is ready for writing."""

    store: "Store"
    resumed: bool
    changed: Event | None
    """The event of the settings that a resume has changed, if any."""


class Store:
    """Commits trials, looks and events; a trial counts once `commit` has returned."""

    def __init__(self, directory: Path, database: RunDatabase, redactor: Redactor | None = None) -> None:
        self.directory = directory
        self.reader = RunReader(directory, database)
        """Reads through the writer's connection, before and after writing."""
        self.redactor = Redactor() if redactor is None else redactor
        """Removes the secrets of the run from whatever is written."""
        self._database = database
        self._models = self.reader.ids("models", "name")
        self._questions = self.reader.ids("questions", "key")
        self._configuration = self.reader.newest_configuration_id()
        self._has_sent = False
        """Whether requests were entered as in flight since this start."""
        self._closed = False
        self._latest = self.reader.newest_at

    @classmethod
    def open(cls, directory: Path, header: RunHeader, redactor: Redactor | None = None) -> "OpenedStore":
        """Begin a run in `directory`, or resume the one there; `redactor` removes secrets from whatever is written.

        Raises `RunLocked`, `RunChanged`, `StoreFull` or `StoreError`, and `ConfigError` if an extra is missing.
        """
        make_directory(directory)
        database, resumed = RunDatabase.open_to_write(directory)
        with closed_on_error(database):
            if resumed:
                database.require_intact()
            else:
                with database.transaction() as writes:
                    write_run(writes, header, time.time())
                    insert_models(writes, header.models)
                    insert_questions(writes, header.questions)
            store = cls(directory, database, redactor)
            return OpenedStore(store, resumed, store._adopt(header) if resumed else None)

    @classmethod
    def attach(cls, directory: Path, redactor: Redactor | None = None) -> "Store":
        """Open a stored run for writing without changing its configuration."""
        if not directory.is_dir() or not is_run(directory):
            raise StoreError(f"{directory} holds no run")
        database, _ = RunDatabase.open_to_write(directory)
        with closed_on_error(database):
            database.require_intact()
            return cls(directory, database, redactor)

    def _now(self) -> float:
        """The time of the next record: readers go by it, so it is after all others, even if clocks are set back."""
        self._latest = max(time.time(), self._latest + NEXT_SECONDS)
        return self._latest

    def redacted(self, event: Kept) -> Kept:
        """An event as it is stored, and as it may be shown."""
        return redact_event(event, self.redactor, self._models.keys() | self._questions.keys())

    def commit(self, batch: CommitBatch) -> CommitBatch:
        """Write a batch atomically; returns it as it was written, without secrets."""
        batch = redact_batch(batch, self.redactor, self._models.keys() | self._questions.keys())
        now = self._now()
        with self._database.transaction() as writes:
            writes.executemany(INSERT_TRIAL, (self._row(trial, now) for trial in batch.trials))
            tokens = (self._logprobs_row(trial) for trial in batch.trials if trial.answer.token_logprobs)
            writes.executemany(INSERT_LOGPROBS, tokens)
            writes.executemany(_REGRADE, (self._regrade_row(verdict) for verdict in batch.verdicts))
            writes.executemany(
                _INSERT_LOOK,
                (sealed(self._configuration, look.number, now, pack_json(look.body)) for look in batch.looks),
            )
            write_events(writes, batch.events, now)
            self._count_in_flight(writes, batch)
            if batch.elapsed is not None:
                writes.execute(_SET_VALUE, ("elapsed", batch.elapsed))
            if batch.held is not None:
                writes.execute(_SET_VALUE, ("held", dump_json(batch.held)))
        return batch

    def lose(self, event: AnswersLost) -> None:
        """Write off what earlier starts had requested of a model; `event` has the cost of lost answers, if any."""
        with self._database.transaction() as writes:
            writes.execute("DELETE FROM asked_for WHERE model = ?", (self._models[event.model],))
            write_events(writes, [self.redacted(event)] if event.answers else [], self._now())

    def forget_looks(self, number: int) -> None:
        """Delete the looks of this configuration from `number` on, which do not follow from today's outcomes.

        They were taken without a model that has since come back, or on grades that were changed.
        """
        with self._database.transaction() as writes:
            writes.execute("DELETE FROM looks WHERE configuration = ? AND number >= ?", (self._configuration, number))

    def regrade(
        self,
        regrades: Sequence[Regrade],
        event: Event | Sequence[Event],
        header: RunHeader | None = None,
        opening: Iterable[CellExtent] = (),
    ) -> None:
        """Replace the grades of stored trials in one transaction, with a new `header` if the grading changed.

        The first trials of each cell of `opening` become part of round 0.
        """
        changes = [] if header is None else self._changes(header)
        events = [event] if isinstance(event, Event) else event
        with self._database.transaction() as writes:
            writes.executemany(_REGRADE, (self._regrade_row(redact_grade(one, self.redactor)) for one in regrades))
            writes.executemany(
                _OPENING,
                [(self._models[one.model], self._questions[one.question], one.extent) for one in opening],
            )
            if header is not None:
                if changes:
                    write_events(writes, [self.redacted(self._settings_event(changes))], self._now())
                writes.execute(_SET_VALUE, ("meaning", dump_json(header.meaning)))
                bodies = ((key, dump_json(body)) for key, body in header.questions.items())
                writes.executemany(_SET_QUESTION, bodies)
                insert_configuration(writes, header.configuration, self._now())
            write_events(writes, map(self.redacted, events), self._now())
        self._configuration = self.reader.newest_configuration_id()

    def forget_trials(self, model: str, trials: Sequence[TrialKey], event: Event) -> None:
        """Delete trials of a model that turned out to be no answers; `event` says why."""
        keys = [(self._models[model], self._questions[question], trial) for question, trial in trials]
        with self._database.transaction() as writes:
            writes.executemany(_FORGET_TOKENS, keys)  # the id of a deleted trial may be used again
            writes.executemany("DELETE FROM trials WHERE model = ? AND question = ? AND trial = ?", keys)
            write_events(writes, [self.redacted(event)], self._now())

    def close(self) -> None:
        """Close the database and release the run directory."""
        if self._closed:
            return
        self._closed = True
        self._database.close()

    def _adopt(self, header: RunHeader) -> Event | None:
        """Resume under today's configuration: refuse changes of the trials' meaning, record all others."""
        stored = self.reader.header()
        require_same_meaning(stored, header, self.directory)
        changes = self._changes(header)
        event = self.redacted(self._settings_event(changes)) if changes else None
        with self._database.transaction() as writes:
            joining = header.models.keys() - stored.models.keys()
            insert_models(writes, {name: header.models[name] for name in header.models if name in joining})
            if event is not None:
                insert_configuration(writes, header.configuration, self._now())
                write_events(writes, [event], self._now())
        self._models = self.reader.ids("models", "name")
        self._configuration = self.reader.newest_configuration_id()
        return event

    def _changes(self, header: RunHeader) -> list[Change]:
        """Settings that differ from the newest stored configuration."""
        return list(differences(self.reader.header().configuration, header.configuration))

    def _settings_event(self, changes: Sequence[Change]) -> SettingsChanged:
        """The event of changed settings, with the trials and looks so far, on which later looks depend."""
        return SettingsChanged(self.reader.trial_count(), self.reader.most_looks(), tuple(changes))

    def _count_in_flight(self, writes: sqlite3.Connection, batch: CommitBatch) -> None:
        """Count requests that are sent as in flight, and no longer those answered or not sent."""
        self._has_sent = self._has_sent or bool(batch.sent)
        if not self._has_sent:
            return
        change = Counter(one.model for one in batch.trials)
        for request in batch.unsent:
            change[request.model] += request.trials
        for request in batch.sent:
            change[request.model] -= request.trials
        writes.executemany(_ASKED_FOR, (sealed(self._models[model], -came) for model, came in change.items()))

    def _row(self, record: TrialRecord, now: float) -> tuple[Stored, ...]:
        return trial_row(self._models[record.model], self._questions[record.question], record, now)

    def _logprobs_row(self, record: TrialRecord) -> tuple[object, ...]:
        assert record.answer.token_logprobs is not None
        place = (self._models[record.model], self._questions[record.question], record.trial)
        packed = pack_logprobs(record.answer.token_logprobs)
        return (packed, checksum(packed), *place)

    def _regrade_row(self, regrade: Regrade) -> tuple[object, ...]:
        return (
            regrade.category,
            dump_json(regrade.signals) if regrade.signals else None,
            valid_text(regrade.extracted),
            valid_text(regrade.grader_error),
            *regrade.cost,
            self._models[regrade.model],
            self._questions[regrade.question],
            regrade.trial,
        )
