"""Grading stored answers again, without a request.

Every stored answer is graded by the grader and rubric of a configuration, against its answer keys, and the run goes on
with these; all grades change or none. Where a judge grades, the caps bear all that its verdicts may cost, or nothing is
asked (`regrade_costs`).
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_eval.base.errors import NEW_RUN, ConfigError, GraderError, StoreError
from adaptive_eval.config.fingerprint import GRADING, differences, require_same_meaning
from adaptive_eval.config.planning import core_caps, worst_verdict
from adaptive_eval.config.prepare import (
    adopt_stored_trials,
    in_order_of_joining,
    make_roster,
    run_header,
    stored_config,
)
from adaptive_eval.config.run import RunConfig
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.config.task_sampling import load_run
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import NO_COST
from adaptive_eval.graders.by_benchmark import find_grader
from adaptive_eval.graders.pool import Grading
from adaptive_eval.graders.rubric import Rubric, open_rubric
from adaptive_eval.graders.types import GraderOptions, with_marks
from adaptive_eval.machine.charges import Charge, earlier_verdict, is_verdict_reserved
from adaptive_eval.machine.events import Graded
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.records import LooksForgotten, Record
from adaptive_eval.machine.trial import DONE, JUDGING, RESERVED, UNGRADED, GradeDetails, Key, Trial
from adaptive_eval.notes import Change, events_of_kind
from adaptive_eval.notes.beginnings import OutcomesRecorded, TrialsImported, counted_runs
from adaptive_eval.notes.grading import ThresholdsFrozen, TrialsRegraded
from adaptive_eval.notes.lives import Override
from adaptive_eval.questions import Question
from adaptive_eval.report.label_effect import read_run_labels
from adaptive_eval.report.make import Reporter
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import Results
from adaptive_eval.report.thresholds import kept_thresholds, thresholds_from_event, thresholds_from_run
from adaptive_eval.running.answer_keys import open_graders
from adaptive_eval.running.baseline import cost_of_baseline, take_baseline
from adaptive_eval.running.grading import grade_answer
from adaptive_eval.running.regrade_costs import RegradeCosts
from adaptive_eval.running.resume import verdicts_asked
from adaptive_eval.running.settings_of_run import awaited_models, missing_looks, replay_stored
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.write import RunStore

CHUNK = 64
"""Answers that are graded at once: a bound for the memory that their texts take."""


class Regraded(NamedTuple):
    """Outcome of a regrade."""

    answers: int
    changed: int
    """Answers with another category than before."""
    failed: int
    """Answers on which the grader failed."""
    before: Results | None = None
    """Results by the grades of before; None before the first look, or if plug-ins decide."""
    after: Results | None = None


async def regrade(
    directory: Path,
    config: RunConfig,
    *,
    beyond_limits: bool = False,
    arguments: tuple[str, ...] | None = None,
    overrides: Mapping[str, Override] | None = None,
) -> Regraded:
    """Grade the stored answers of a run again; raises `RunChanged` if `config` changes more than the grading.

    `beyond_limits`: whatever a judge may cost, which is else a `ConfigError` where a cap does not bear it. `arguments`:
    those of the command that goes on with `config`; `overrides`: what later starts are to remember.
    """
    with closing(RunStore.attach(directory, run_redactor(config))) as store:
        stored, reader = store.reader.header(), RunReader(store.reader)
        if not reader.trial_count():
            raise ConfigError(f"{directory} has no answers yet, so there is nothing to regrade; let it run on")
        config = adopt_stored_trials(config, stored_config(stored), at_any_pace=config.trials.optimize == "auto")
        if strange := [model.name for model in config.models if model.name not in stored.models]:
            raise ConfigError(
                f"the configuration has {', '.join(strange)}, of which {directory} has no answers; remove it for the "
                "regrade, and `adaptive-eval run` can add it afterwards"
            )
        config, loaded = load_run(in_order_of_joining(config, stored))
        header = run_header(config, loaded)
        as_now = _regraded_header(stored, header)
        require_same_meaning(as_now, header, directory)
        if (as_now.meaning, as_now.questions) != (stored.meaning, stored.questions):
            _require_own_grades(reader)
        _require_texts(reader)
        order = {key: place for place, key in enumerate(stored.questions)}
        questions = tuple(sorted(loaded, key=lambda question: order[question.id]))
        return await _Regrading(store, config, questions, header).carry_out(beyond_limits, arguments, overrides)


def _name(names: Sequence[str], category: int | None) -> str | None:
    """The name of a category, which rubrics number as they list them."""
    return None if category is None else names[category]


class _Regrading:
    """Inputs of a regrade: a stored run, and the configuration by which its answers are graded."""

    def __init__(self, store: RunStore, config: RunConfig, questions: tuple[Question, ...], header: RunHeader) -> None:
        """`header` is that of the run as graded now."""
        self._store, self._config, self._questions, self._header = store, config, questions, header
        self._reader = RunReader(store.reader)
        self._before: dict[Key, int | None] = {}
        """The category that each answer had."""
        self._new: dict[Key, Graded] = {}
        """The grades of stored answers now."""
        self._charges: list[Charge] = []
        """Verdicts that no answer has any more."""

    async def carry_out(
        self, beyond_limits: bool, arguments: tuple[str, ...] | None, overrides: Mapping[str, Override] | None
    ) -> Regraded:
        """Grade answers, and store their grades."""
        thresholds = thresholds_from_run(self._config.rubric, [question.id for question in self._questions])
        if any(self._new_thresholds(thresholds)):
            _require_own_grades(self._reader)
        await self._grade(open_rubric(self._config.rubric, thresholds_from_event(thresholds)), beyond_limits)
        _require_some_grade(self._new.values())
        names, old_names = open_rubric(self._config.rubric).names, open_rubric(self._stored_config().rubric).names
        changed = sum(
            _name(old_names, self._before[key]) != _name(names, grade.category) for key, grade in self._new.items()
        )
        done = Regraded(len(self._new), changed, sum(grade.category is None for grade in self._new.values()))
        return self._write(done, thresholds, arguments, overrides)

    def _new_thresholds(self, now: ThresholdsFrozen | None) -> Iterator[Change]:
        """The change of frozen thresholds, as when another run lies where the rubric takes them from."""
        before = kept_thresholds(self._stored_config().rubric, self._reader.events())
        if before is not None and now is not None and (before.values, before.medians) != (now.values, now.medians):
            yield Change("rubric.thresholds", before.values, now.values)

    async def _grade(self, rubric: Rubric, beyond_limits: bool) -> None:
        """Grade answers, and charge what is asked for it."""
        worst, caps = worst_verdict(self._config, self._questions), core_caps(self._config.budget)
        async with open_graders(self._config, rubric, worst) as grading:
            verdict = worst if grading.lasting and caps.bought else NO_COST
            vote, answers = grading.lost_vote(grading.lost), self._reader.trial_count()
            costs = RegradeCosts(self._store, verdict, vote, Budget() if beyond_limits else caps, answers)
            costs.require_room(cost_of_baseline(grading, self._store))
            await take_baseline(grading, self._store, lambda total: costs.exceeded_cap(total) is None)
            stored = self._answers()
            while chunk := list(islice(stored, CHUNK)):
                costs.reserve(len(chunk))
                graded = await self._grade_chunk(grading, chunk, costs)
                costs.settle(graded)
                self._new |= {grade.key: grade for grade in graded}
                if grading.lasting:
                    _require_some_grade(self._new.values())
        self._charges += [costs.taken_back()] if grading.lasting else []

    async def _grade_chunk(self, grading: Grading, trials: list[Trial], costs: RegradeCosts) -> list[Graded]:
        gradings = (
            grade_answer(
                grading,
                with_scores(trial, self._questions[trial.question], self._config.grader),
                self._questions[trial.question],
                costs.retry_gate(trial.model),
            )
            for trial in trials
        )
        return await asyncio.gather(*gradings)

    def _answers(self) -> Iterator[Trial]:
        """The stored answers that are to be graded; what verdicts on them have cost goes into the charges."""
        asked = verdicts_asked(self._store.reader)
        state_list = ", ".join(f"'{state.value}'" for state in (JUDGING, DONE, UNGRADED))
        for _, trial in chain.from_iterable(self._store.reader.batches(f"state IN ({state_list})")):
            if (charge := earlier_verdict(trial, was_asked=asked > 0)) is not None:
                self._charges.append(charge)
            asked -= is_verdict_reserved(trial)
            self._before[trial.key] = trial.category
            yield trial

    def _write(
        self,
        done: Regraded,
        thresholds: ThresholdsFrozen | None,
        arguments: tuple[str, ...] | None,
        overrides: Mapping[str, Override] | None,
    ) -> Regraded:
        """Store grades, the events that go with them, and the looks and the report that follow."""
        store, header, stored = self._store, self._header, self._store.reader.header()
        # else no look changes
        is_anew = done.changed > 0 or header.meaning.get("rubric") != stored.meaning.get("rubric")
        machine = self._replay()
        reporter, earlier = self._reporter(self._config), self._reporter(self._stored_config())  # may have other models
        before = None if machine is None else _results(earlier, machine, store)
        opening = judged_cells(machine) if is_anew and machine is not None else {}
        last = store.last_seq if opening else None
        counts = TrialsRegraded(done.answers, answers=done.answers, changed=done.changed, failed=done.failed)
        event = replace(counts, opening=last, arguments=arguments, overrides=overrides)
        records: list[Record] = [*_sum_charges(self._charges), note_of(event, {})]  # looks begin again after the note
        records += [] if thresholds is None else [note_of(thresholds, {})]
        records += [LooksForgotten(0)] if opening else []
        changes = [*differences(stored.configuration, header.configuration), *self._new_thresholds(thresholds)]

        def change(seq: int, trial: Trial) -> Trial | None:
            if trial.state is RESERVED:
                return None
            if trial.number < opening.get((trial.model, trial.question), 0):
                trial = trial._replace(round=0)
            if (grade := self._new.get(trial.key)) is None:
                return trial if opening else None
            return trial._replace(
                state=UNGRADED if grade.category is None else DONE,
                category=grade.category,
                grade=grade.details,
                verdict=grade.cost,
            )

        store.regrade(change, records, header, changes)
        machine = self._replay()
        if machine is None:
            return done._replace(before=before)
        looks = missing_looks(machine, self._reader)  # all if new grades were given
        draft = reporter.draft(machine, is_over=True)
        store.commit([*enumerate(looks, store.last_seq + 1)], report=draft)
        if draft is not None:
            draft.publish(store)
        return done._replace(before=before, after=None if draft is None else draft.results)

    def _replay(self) -> Machine | None:
        """A machine at the end of the log as it is now, like that of a start which asks nothing; None if plug-ins
        decide."""
        config = self._stored_config()
        if config.plug_ins:
            return None
        machine = replay_stored(self._store.reader, config, self._questions)
        machine.waited_before = awaited_models(
            self._reader.events(), self._store.reader.models(), self._reader.trial_count()
        )
        machine.count_overrun()
        return machine

    def _stored_config(self) -> RunConfig:
        header = self._store.reader.header()
        return in_order_of_joining(stored_config(header), header)

    def _reporter(self, config: RunConfig) -> Reporter:
        roster = make_roster(config, self._questions)
        return Reporter(
            config,
            self._questions,
            self._store.reader.created,
            lambda: read_run_labels(self._reader, config, roster),  # by the grades that are stored then
        )


def _results(reporter: Reporter, machine: Machine, store: RunStore) -> Results | None:
    """The results by the grades of before; None before the first look."""
    draft = reporter.draft(machine, is_over=True)
    if draft is None:
        return None
    draft(store.reader)
    return draft.results


def _sum_charges(charges: Iterable[Charge]) -> list[Charge]:
    """Charges that differ in their number and cost alone, as one."""
    sums: dict[tuple[object, ...], Charge] = {}
    for charge in charges:
        key = charge.kind, charge.what, charge.model, charge.estimated
        total = sums.get(key)
        sums[key] = (
            charge
            if total is None
            else total._replace(number=total.number + charge.number, cost=total.cost.plus(charge.cost))
        )
    return list(sums.values())


def with_scores(trial: Trial, question: Question, grader: GraderOptions) -> Trial:
    """The trial; with its stored marks if those come with answers, such as the scores of Inspect's samples."""
    answer, details, grading = trial.answer, trial.grade or GradeDetails(), find_grader(grader, question)
    if answer is None or not grading.comes_with_answer:
        return trial
    marks = grading.stored_marks(answer, details.signals, details.extracted)
    return trial if marks is None else trial._replace(answer=with_marks(answer, marks))


def _require_some_grade(grades: Iterable[Graded]) -> None:
    """Raise `GraderError` if the grader has failed on every answer: what is stored stays as it is."""
    grades = list(grades)
    if grades and all(grade.category is None for grade in grades):
        raise GraderError(
            f"the grader failed on each of the {len(grades)} answers that it was given, so no grade was changed: "
            f"{grades[0].details.error}"
        )


def judged_cells(machine: Machine) -> dict[tuple[int, int], int]:
    """Number of trials of each model and question in complete rounds: they were chosen by the grades of before, so
    that the first look with new grades takes all of them. Empty before the first look, and if questions are drawn: then
    looks are taken in the usual order."""
    controller, roster = machine.controller, machine.setting.roster
    if controller.plan.drawn or not controller.looks:
        return {}
    trials = controller.counts.sum(axis=-1) + controller.ungraded
    return {
        (roster[at], int(question)): int(trials[at, question]) for at, question in zip(*np.nonzero(trials), strict=True)
    }


def _require_own_grades(reader: RunReader) -> None:
    """Raise `StoreError` if the run has counted outcomes of others: these must be by the same grader as those that they
    are compared with, and may come back."""
    if counted := counted_runs(reader.events()):
        recorded = [event for event in counted if isinstance(event, OutcomesRecorded)]
        what = f"recorded models ({', '.join(event.model for event in recorded)})" if recorded else "R0"
        runs = sorted({event.directory if isinstance(event, OutcomesRecorded) else event.run for event in counted})
        raise StoreError(
            f"{reader.directory} has counted outcomes of {', '.join(runs)} as {what}, which only have their old grades "
            f"here; grade them again there, then {NEW_RUN}"
        )


def _require_texts(reader: RunReader) -> None:
    """Raise `StoreError` if some imported trials have no text, and so cannot be graded again."""
    without = sum(event.without_text for event in events_of_kind(reader.events(), TrialsImported))
    if without:
        raise StoreError(
            f"{reader.directory} has {without} imported trials without a text, which cannot be graded again; import "
            "logs with texts"
        )


def _regraded_header(stored: RunHeader, now: RunHeader) -> RunHeader:
    """The header of the stored run if it had been graded as it is to be graded now."""
    meaning = {**stored.meaning, **{key: now.meaning[key] for key in GRADING}}
    questions = {
        key: {**body, "answer": now.questions[key]["answer"]} if key in now.questions else body
        for key, body in stored.questions.items()
    }
    return replace(stored, meaning=meaning, questions=questions)
