"""Grading stored answers again, without a request.

Without a new configuration, the answers on which the grader failed are tried again. With one, every stored answer is
graded by its grader and rubric, against its answer keys, and the run goes on with these; all grades change or none.
Where a judge grades, the caps bear all that its verdicts may cost, or nothing is asked (`rejudging_costs`).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.base.errors import ConfigError, GraderError, StoreError
from adaptive_eval.config.planning import core_caps, trial_cost, worst_verdict
from adaptive_eval.config.prepare import (
    adopt_stored_trials,
    prepare,
    run_header,
    stored_config,
    stored_questions,
)
from adaptive_eval.config.run import RunConfig
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.config.task_sampling import load_run
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again, Answer
from adaptive_eval.graders.asked import cost_from_signals
from adaptive_eval.graders.by_benchmark import InspectScores, find_grader, grader_that_asks
from adaptive_eval.graders.rubric import Rubric, open_rubric
from adaptive_eval.graders.types import GraderOptions, MarkedAnswer, Marks
from adaptive_eval.questions import Question
from adaptive_eval.report.old.restore import StoredRun
from adaptive_eval.report.results import Results
from adaptive_eval.report.results_file import write_results
from adaptive_eval.report.thresholds import thresholds_from_run
from adaptive_eval.running.answer_keys import open_graders
from adaptive_eval.running.baseline import take_baseline
from adaptive_eval.running.rejudging_costs import RejudgingCosts
from adaptive_eval.scheduler.grading import grade_stored, wasted_verdict
from adaptive_eval.scheduler.verdict_costs import VerdictCosts
from adaptive_eval.store import (
    CellExtent,
    CommitBatch,
    Event,
    OutcomesRecorded,
    PriorTaken,
    Regrade,
    RunBegun,
    RunHeader,
    Store,
    TrialRecord,
    TrialsImported,
    TrialsRegraded,
    VerdictsWasted,
    events_of_kind,
    require_same_meaning,
)
from adaptive_eval.store.looks import plain_look
from adaptive_eval.store.records import NO_GRADING, GradingUse, wasted_use
from adaptive_eval.store.thresholds import kept_rubric, thresholds_from_event

AT_A_TIME = 64
"""Answers that are graded at once: a bound for the memory that their texts take."""
GRADING = ("grader", "rubric")
"""The part of a run's meaning that grading anew may change, besides the questions' answer keys."""


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
    config: RunConfig | None = None,
    *,
    beyond_caps: bool = False,
    arguments: tuple[str, ...] | None = None,
) -> Regraded:
    """Grade the stored answers of a run again; raises `RunChanged` if `config` changes more than the grading.

    `beyond_caps`: whatever a judge may cost, which is else a `ConfigError` where a cap does not bear it. `arguments`:
    those of the command that goes on with `config`.
    """
    with closing(Store.attach(directory, None if config is None else run_redactor(config))) as store:
        stored = store.reader.header()
        as_stored = stored_config(stored)
        if config is None:
            header, config, questions = None, _config_without_code(as_stored, directory), stored_questions(stored)
        else:
            config = adopt_stored_trials(config, as_stored, at_any_pace=config.trials.optimize == "auto")
            config, questions = load_run(config)
            header = run_header(config, questions)
            as_now = _regraded_header(stored, header)
            require_same_meaning(as_now, header, directory)
            if (as_now.meaning, as_now.questions) != (stored.meaning, stored.questions):
                _require_own_grades(store)
            _require_texts(store)
        return await _Regrading(store, config, questions, header).carry_out(beyond_caps, arguments)


class _Regrading:
    """What a regrade goes by: a stored run, and the configuration by which its answers are graded."""

    def __init__(
        self, store: Store, config: RunConfig, questions: tuple[Question, ...], header: RunHeader | None
    ) -> None:
        """`header` is that of the run as graded now; None: the answers on which the grader failed are tried again."""
        self._store, self._config, self._questions, self._header = store, config, questions, header

    async def carry_out(self, beyond_caps: bool, arguments: tuple[str, ...] | None) -> Regraded:
        """Grade answers, and store their grades."""
        section, thresholds = self._config.rubric, None
        if self._header is None:
            rubric = kept_rubric(section, self._store.reader.events())
        else:
            thresholds = thresholds_from_run(section)
            rubric = open_rubric(section, thresholds_from_event(thresholds))
        before = list[tuple[int | None, Cost | None]]()
        """Category of each answer before, and what its verdict used."""

        def noted() -> Iterator[TrialRecord]:
            for record in self._to_grade():
                before.append((record.category, cost_from_signals(record.signals)))
                yield record

        regrades, spent = await self._grade(rubric, noted(), beyond_caps)
        _require_some_grade(regrades)
        changed = sum(old != new.category for (old, _), new in zip(before, regrades, strict=True))
        done = Regraded(len(regrades), changed, sum(new.failed for new in regrades))
        if not regrades and self._header is None:
            return done
        events: list[Event] = [] if thresholds is None else [thresholds]
        events += [] if spent is None else [spent.taken_back()]
        events += sum_by_model(filter(None, map(wasted_verdict, regrades, (used for _, used in before))))
        return self._write(done, regrades, events, arguments)

    def _to_grade(self) -> Iterator[TrialRecord]:
        """The stored answers that are graded anew."""
        grader, only_ungraded = self._config.grader, self._header is None
        records = self._store.reader.trials("ungraded" if only_ungraded else "all")
        yield from with_scores(records, self._questions, grader)

    async def _grade(
        self, rubric: Rubric, records: Iterator[TrialRecord], beyond_caps: bool
    ) -> tuple[list[Regrade], RejudgingCosts | None]:
        """Grade answers, and keep an account of what is asked for it, where anything is."""
        store, config = self._store, self._config
        verdict = worst_verdict(config, self._questions)
        pool = open_graders(config, rubric, verdict)
        capped = verdict != NO_COST and core_caps(config.budget).bought
        run, vote = prepare(config) if capped else None, pool.lost_vote(pool.lost)
        spent = RejudgingCosts(store, verdict, vote, run, beyond_caps) if pool.lasting else None
        again: Callable[[TrialRecord], Again | None] = (lambda one: None) if spent is None else spent.retry_check
        by_id, regrades = {question.id: question for question in self._questions}, list[Regrade]()
        prices = {model.name: trial_cost(model) for model in config.models}
        async with pool:
            if spent is not None:
                spent.require_room(store.reader.trial_count())
                waiting = (one for one in store.reader.trials("ungraded") if one.awaits_verdict and one.model in prices)
                costs = VerdictCosts(pool, self._questions, capped=capped)
                store.commit(costs.settle_reserves(waiting, prices, events_of_kind(store.reader.events(), RunBegun)))
            await take_baseline(pool, store, lambda total: spent is None or spent.can_afford(total))
            while some := list(islice(records, AT_A_TIME)):
                if spent is not None:
                    spent.ask(len(some))
                regrades += (found := await grade_stored(pool, some, by_id, again))
                if spent is not None:
                    spent.enter_verdicts(found)
                    _require_some_grade(regrades)
        return regrades, spent

    def _write(
        self, done: Regraded, regrades: list[Regrade], events: list[Event], arguments: tuple[str, ...] | None
    ) -> Regraded:
        """Store grades, the events that go with them, and the results that follow."""
        store, header = self._store, self._header
        standing = StoredRun(store.reader)
        rubric = store.reader.header().meaning.get("rubric")
        # else no look changes
        anew = done.changed > 0 or (header is not None and header.meaning.get("rubric") != rubric)
        opening = judged_cells(standing) if anew else []
        last = store.reader.newest_trial_id if opening else None
        counts = {"answers": done.answers, "changed": done.changed, "failed": done.failed}
        told = TrialsRegraded(done.answers, **counts, opening=last, arguments=arguments)
        before = standing.recompute_results(running=False)
        store.regrade(regrades, [told, *events], header, opening)
        judged = StoredRun(store.reader)
        if opening:
            store.forget_looks(0)
            controller, names = judged.state.controller, tuple(judged.setup.roster.models)
            capped = controller.plan.has_capped_opening
            looks = [plain_look(look, names, capped_opening=capped) for look in controller.looks]
            store.commit(CommitBatch(looks=looks))
        after = judged.recompute_results(running=False)
        if after is not None:
            write_results(store.directory, after)
        return done._replace(before=before, after=after)


def with_scores(
    records: Iterable[TrialRecord], questions: Iterable[Question], grader: GraderOptions
) -> Iterator[TrialRecord]:
    """The records, those of Inspect's samples with their stored scores, since Inspect does not score again."""
    by_inspect = {question.id for question in questions if isinstance(find_grader(grader, question), InspectScores)}
    for record in records:
        yield _with_scores(record) if record.question in by_inspect else record


def _with_scores(record: TrialRecord) -> TrialRecord:
    signals = {name: value for name, value in record.signals.items() if name in InspectScores().gives}
    given = {field.name: getattr(record.answer, field.name) for field in fields(Answer)}
    marks = Marks(signals, record.extracted)
    return replace(record, answer=MarkedAnswer(**given, marks=marks)) if signals else record


def _require_some_grade(regrades: list[Regrade]) -> None:
    """Raise `GraderError` where the grader has failed on every answer: what is stored stays as it is."""
    if regrades and all(one.failed for one in regrades):
        raise GraderError(
            f"the grader failed on each of the {len(regrades)} answers that it was given, so no grade was changed: "
            f"{regrades[0].grader_error}"
        )


def judged_cells(stored: StoredRun) -> list[CellExtent]:
    """The trials of complete rounds, which were chosen by the grades of before, so that the first look with new grades
    takes all of them. None if plug-ins decide, before the first look, or if questions are drawn: then looks are taken
    in the usual order."""
    config, roster = stored.setup.config, stored.setup.roster
    if config.plug_ins or config.trials.draw is not None:
        return []
    controller = stored.state.controller
    trials = controller.counts.sum(axis=-1) + controller.ungraded
    return [
        CellExtent(model, question, int(trials[roster.cell(model, question)]))
        for model in roster.models
        for question in roster.questions
        if trials[roster.cell(model, question)]
    ]


def sum_by_model(events: Iterable[VerdictsWasted]) -> list[VerdictsWasted]:
    """Sum the events of each model into one."""
    sums: dict[str, GradingUse] = {}
    for one in events:
        sums[one.model] = sums.get(one.model, NO_GRADING).plus(wasted_use(one))
    return [VerdictsWasted(model, use.verdicts_in_vain, *use.in_vain) for model, use in sums.items()]


def _config_without_code(config: RunConfig, directory: Path) -> RunConfig:
    """A stored configuration to grade by; raises `ConfigError` if it names code or a server. Its folder is left out."""
    if (asked := grader_that_asks(config.grader)) is not None:
        raise ConfigError(
            f"the run in {directory} is graded by a {asked.kind} at an address that the run names, and nothing "
            "is sent to one because of that; if it is yours: `adaptive-eval run` with your configuration judges what "
            "has no verdict, "
            f"and adaptive-eval regrade {directory} --config CONFIG judges everything anew"
        )
    if config.grader.functions:
        functions = ", ".join(config.grader.functions)
        raise ConfigError(
            f"the run in {directory} is graded by a function, {functions}, and no code is run because a "
            f"run names it; if that is your grader: adaptive-eval regrade {directory} --config CONFIG"
        )
    return config.model_copy(update={"folder": Path()})


def _require_own_grades(store: Store) -> None:
    """Raise `StoreError` if the run has recorded models or counts R0: only their grades are known, and these must be by
    the same grader as those that they are compared with."""
    events = store.reader.events()
    if recorded := events_of_kind(events, OutcomesRecorded):
        names, runs = ", ".join(event.model for event in recorded), sorted({event.directory for event in recorded})
        raise StoreError(
            f"{store.directory} has recorded models ({names}), whose outcomes were graded as the run is graded now; "
            f"regrade {', '.join(runs)}, and begin another run with what it says then (--fresh)"
        )
    if taken := events_of_kind(events, PriorTaken):
        raise StoreError(
            f"{store.directory} counts outcomes of {taken[-1].run} as R0, which were graded as the run is graded now; "
            "begin another run with this configuration (--fresh)"
        )


def _require_texts(store: Store) -> None:
    """Raise `StoreError` if some imported trials have no text, and so cannot be graded again."""
    without = sum(event.without_text for event in events_of_kind(store.reader.events(), TrialsImported))
    if without:
        raise StoreError(
            f"{store.directory} has {without} imported trials without a text, of which only the grade is known; they "
            "cannot be graded by another grader: import logs that have the texts"
        )


def _regraded_header(stored: RunHeader, now: RunHeader) -> RunHeader:
    """The header of the stored run if it had been graded as it is to be graded now."""
    meaning = {**stored.meaning, **{key: now.meaning[key] for key in GRADING}}
    questions = {
        key: {**body, "answer": now.questions[key]["answer"]} if key in now.questions else body
        for key, body in stored.questions.items()
    }
    return replace(stored, meaning=meaning, questions=questions)
