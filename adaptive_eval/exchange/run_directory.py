"""Turns an import into a run; its directory has a temporary name until it is complete.

The run has one look at all trials, stored and published as for any run.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.base.seeds import SEED_SPAN
from adaptive_eval.config.first_round import UNITS, cap_key, cap_unit, smallest_cap
from adaptive_eval.config.prepare import at_first_start, run_header, seed_base, stored_questions, with_questions
from adaptive_eval.config.run import RunConfig
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.core.types import Cause
from adaptive_eval.endpoints.redaction import Redactor, environment_secrets
from adaptive_eval.exchange.configure import (
    CONFIG_FILE,
    QUESTIONS_FILE,
    UNKNOWN_URL,
    ImportTerms,
    config_text,
    config_tree,
    question_lines,
    run_name,
)
from adaptive_eval.exchange.gather import RecordGatherer
from adaptive_eval.exchange.log_files import LogError
from adaptive_eval.exchange.samples import NOT_LOGGED
from adaptive_eval.graders.by_benchmark import grader_that_asks
from adaptive_eval.graders.registry import Logged
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.records import ALARM, CORE_SET_ASIDE, SET_ASIDE, LookTaken, Note
from adaptive_eval.notes.beginnings import TrialsImported, has_foreign_trials
from adaptive_eval.notes.lives import RunFinished, RunStopped
from adaptive_eval.questions import Question
from adaptive_eval.report.make import Reporter
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.results import Results
from adaptive_eval.running.beginning import require_room
from adaptive_eval.running.read_prior_outcomes import take_prior
from adaptive_eval.running.settings_of_run import replay_stored
from adaptive_eval.store.bulk import BulkImport
from adaptive_eval.store.write import RunStore

MISSING_TRIALS = "trials for the first look are missing"
MAX_TRIAL_NUMBER = 10**6
"""Largest trial number considered; a seed further from the first one belongs to another run."""


def take_imported_look(directory: Path, config: RunConfig) -> Results | None:
    """Take the look and write the results; None if no model has all the trials that it needs.

    A model without all of them is set aside, so that the others can be compared; `run` requests the missing trials. If
    the seeds match the configuration, the looks are those that the run would have taken.

    Raises `ConfigError` if a cap is below what the trials have cost: scores would leave out some of them, as if they
    were not paid for.
    """
    with closing(RunStore.attach(directory)) as store:
        reader = RunReader(store.reader)
        events = reader.events()
        if problems := [*_exceeded_caps(config, reader)]:
            raise ConfigError("\n".join(problems))
        questions = stored_questions(store.reader.header())
        machine = replay_stored(store.reader, config, questions)
        if has_foreign_trials(events) and (missing := _incomplete_models(machine)):
            body = {"reason": MISSING_TRIALS, "cause": Cause.SERVER.value}
            store.append(*(Note(SET_ASIDE, model, body) for model in missing))
            machine = replay_stored(store.reader, config, questions)
        records = [
            record
            for record in machine.derived.collected
            if isinstance(record, LookTaken) or record.kind in (CORE_SET_ASIDE, ALARM)
        ]
        reason, short_caps = machine.controller.finished, machine.controller.short_caps
        ended = RunStopped() if reason is None else RunFinished(reason, short_caps=short_caps or None)
        reporter = Reporter(config, questions, store.reader.created)
        draft = reporter.draft(machine, is_over=True)
        rows = [*enumerate([*records, note_of(ended, {})], store.last_seq + 1)]
        store.commit(rows, report=draft)
        if draft is None:
            return None
        draft.publish(store)
        return draft.results


def _exceeded_caps(config: RunConfig, reader: RunReader) -> Iterator[str]:
    """A sentence for each cap that is below what the trials have cost."""
    spent = {"trials": float(reader.trial_count()), **reader.log.spent()._asdict()}
    for currency, (unit, _) in UNITS.items():
        key, used = cap_key(currency), round(spent[currency] / unit, 9)  # sums of fractions are not exact
        cap = config.budget.caps.get(key)
        if cap is not None and used > cap:
            yield (
                f"budget.{key} is {plain_number(cap, 10)}, but the trials of the logs have used "
                f"{plain_number(used, 10)} {cap_unit(key)}; "
                f"set it to {plain_number(smallest_cap(currency, spent[currency]), 10)} or more, or remove it"
            )


def _incomplete_models(machine: Machine) -> list[int]:
    """The models that lack trials of the first look; none if all of them do."""
    controller, roster = machine.controller, machine.setting.roster
    incomplete = [] if controller.looks else [roster[at] for at in controller.awaited()]
    return incomplete if len(incomplete) < len(roster) else []


@contextmanager
def draft_run(path: Path, terms: ImportTerms) -> Iterator["RunDraft"]:
    """A context with a run to fill, which is moved to `path` at the end; an error leaves nothing behind."""
    if path.exists():
        raise ConfigError(f"{path} already exists; import into a new directory")
    directory = path.with_name(f".{path.name}.draft-{os.getpid()}")
    try:
        directory.mkdir(parents=True)
        with closing(RunDraft(directory, path, terms)) as draft:
            yield draft
        directory.rename(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; give another --to") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class RunDraft:
    """Collects graded trials and turns them into a run."""

    def __init__(self, directory: Path, place: Path, terms: ImportTerms) -> None:
        self._directory, self._place, self._terms = directory, place, terms
        config = terms.request.config
        redactor = Redactor() if config is None else run_redactor(config)
        redactor.add(environment_secrets(os.environ))  # keys in use when the logs were written
        self._draft = BulkImport.begin(directory, redactor)
        self._bases = {} if config is None else {model.name: seed_base(config, model) for model in config.models}
        self._seeds_match = config is not None
        if config is not None and terms.questions is not None:  # decisions may depend on their order
            for name in self._bases:
                self._draft.model(name)
            for question in terms.questions:
                self._draft.question(question.id)

    def take(self, records: Sequence[TrialRecord]) -> None:
        """Add trials; raises `LogError` if the run could request one of them again when it is continued."""
        for record in records if self._bases else ():
            self._compare_seed(record)
        draft = self._draft
        draft.add(record.numbered(draft.model(record.model), draft.question(record.question)) for record in records)

    def _compare_seed(self, record: TrialRecord) -> None:
        """Check whether a trial has the seed of the configuration; raises `LogError` if it has another trial's seed."""
        seed = record.answer.seed
        number = (seed - self._bases[record.model](record.question)) % SEED_SPAN
        if seed != NOT_LOGGED and number != record.trial and number < MAX_TRIAL_NUMBER:
            raise LogError(
                f"trial {record.trial} of question {record.question!r} by {record.model} has the seed {seed}, which "
                f"the configuration gives to trial {number}: it could be requested again and count twice; change the "
                "seed of the configuration"
            )
        self._seeds_match = self._seeds_match and seed != NOT_LOGGED and number == record.trial

    def finish(self, gathering: RecordGatherer, grader: GraderOptions | None) -> tuple[Results | None, bool]:
        """Write the run; returns its results, and whether it can be continued.

        `grader` reproduces its grades; None if there is no such grader.
        """
        terms, prior = self._terms, None
        for model, key in () if self._seeds_match else gathering.gaps:
            self._draft.renumber(model, key)
        if terms.request.config is not None and terms.questions is not None:
            config, questions, can_continue = terms.request.config, terms.questions, True
            trials = gathering.trials
            held = [[trials.get((model.name, question.id), 0) for question in questions] for model in config.models]
            require_room(config, np.array(held, np.int32))  # scores would leave out the others
            if config.trials.draw is not None and not self._seeds_match:
                raise LogError(
                    "trials.draw goes on only from trials with the configuration's seeds, and these have others or "
                    "none: of a run, import an export other than npz, which has none; else remove trials.draw"
                )
            if self._seeds_match:
                config = at_first_start(config, questions).config
            if config.prior is not None and grader is not None:  # else `run` takes R0, once all has been graded anew
                prepared = replace(with_questions(config, questions), rubric=terms.rubric)
                prior = take_prior(config.prior, prepared, self._place, None)
            if grader is None:
                asked = grader_that_asks(config.grader)
                config = config.model_copy(update={"grader": Logged(judged_by=None if asked is None else asked.kind)})
        else:
            questions = tuple(Question(key, *asked) for key, asked in gathering.asked.items())
            can_continue = all(question.prompt.strip() and question.answer.strip() for question in questions)
            can_continue = can_continue and not gathering.differing  # there is one sampling for all tasks
            tree = config_tree(gathering, questions, terms.request, grader, run_name(self._place))
            config = self._write_config(tree, questions, can_continue)
        imported = _import_event(gathering, terms, self._seeds_match, lacks_questions=not can_continue)
        events = [event for event in (imported, terms.thresholds, prior) if event is not None]
        self._draft.finish(run_header(config, questions), gathering.keys, [note_of(event, {}) for event in events])
        self.close()
        return take_imported_look(self._directory, config), can_continue

    def close(self) -> None:
        """Close the database; an unfinished run is lost."""
        self._draft.close()

    def _write_config(self, tree: Mapping[str, Any], questions: Sequence[Question], can_continue: bool) -> RunConfig:
        """Write the configuration and the questions into the run directory."""
        (self._directory / CONFIG_FILE).write_text(config_text(tree, can_continue), encoding="utf-8")
        lines = "".join(f"{line}\n" for line in question_lines(questions))
        (self._directory / QUESTIONS_FILE).write_text(lines, encoding="utf-8")
        models = [{"base_url": UNKNOWN_URL, **model} for model in tree["models"]]
        document = {"grader": {"kind": "logged"}, **tree, "models": models, "folder": str(self._place.absolute())}
        return RunConfig.model_validate_json(json.dumps(document))


def _import_event(
    gathering: RecordGatherer, terms: ImportTerms, seeds_match: bool, *, lacks_questions: bool
) -> TrialsImported:
    """The event of the import, with file names but no folders, since reports are published."""
    return TrialsImported(
        trials=sum(gathering.trials.values()),
        files=tuple(dict.fromkeys(gathering.files)),
        without_text=gathering.without_text,
        missing=gathering.missing,
        repeated=gathering.repeated,
        repeats_count=terms.request.repeats_are_samples,
        graded_by=None if terms.grader is None else getattr(terms.grader, "kind", None),
        seeds_match=seeds_match,
        lacks_questions=lacks_questions or None,
        arguments=terms.request.arguments,
    )
