"""The steps of an import: read, gather, grade and write, all or nothing."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.config.normalise import LM_EVAL_GRADE
from adaptive_eval.exchange.configure import ImportRequest, ImportTerms, likely_grader, make_terms
from adaptive_eval.exchange.detect import log_files, read_records
from adaptive_eval.exchange.gather import KEY_SEPARATOR, RecordGatherer
from adaptive_eval.exchange.grading import RecordGrader
from adaptive_eval.exchange.log_files import MOST_BYTES, LogError, LogFile
from adaptive_eval.exchange.matching import ConfiguredRun
from adaptive_eval.exchange.run_directory import draft_run
from adaptive_eval.exchange.samples import Record
from adaptive_eval.graders.agreement import Agreement, GradedAnswer, Reservoir, agreement
from adaptive_eval.graders.by_benchmark import find_grader
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.pool import Grading, GradingPool
from adaptive_eval.graders.types import GraderOptions, WorkerSettings
from adaptive_eval.questions import Question
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.results import Results

BATCH_SIZE = 256
MAX_SAMPLED_CHARACTERS = 2**20
"""Longest text in the sample on which graders are tried; many are in memory at once."""
OnImportProgress = Callable[[float, int], None]
"""Called with the share of the files that is read, and the number of trials so far."""
Take = Callable[[Sequence[TrialRecord]], None]


class ImportResult(NamedTuple):
    """The result of an import."""

    path: Path
    trials: int
    gathering: RecordGatherer
    results: Results | None
    """None if trials are missing that the first look needs."""
    runnable: bool
    """Whether the run can be continued with the configuration written for it, or the given one."""
    disagreement: Agreement | None
    """Why the run has no grader yet: the likely one does not reproduce the grades of the logs."""
    scorers: Mapping[str, tuple[str, Sequence[str]]]
    """By task: the scorer of the logs whose grades count, and the others there."""


def import_logs(request: ImportRequest, on_progress: OnImportProgress = lambda share, trials: None) -> ImportResult:
    """Import logs; if it raises `ConfigError`, which names file and record, or `StoreError`, nothing was written."""
    terms = make_terms(request)
    scorer = request.scorer or _configured_metric(terms.grader)
    tasks = {} if request.config is None else request.config.inspect_tasks
    scorers = {name: task.scorer for name, task in tasks.items() if task is not None and task.scorer is not None}
    files = log_files(request.files, scorer, graded_anew=terms.grader is not None, scorers=scorers)
    work = _Import(terms, files, on_progress)
    with draft_run(request.to, terms) as draft:
        asyncio.run(work.read_all(draft.take))
        grader, disagreement = asyncio.run(work.compared())
        results, runnable = draft.finish(work.gathering, None if disagreement is not None else grader)
    return ImportResult(request.to, work.trials, work.gathering, results, runnable, disagreement, work.scorers)


class _Import:
    """Turns files into graded trials."""

    def __init__(self, terms: ImportTerms, files: list[LogFile], on_progress: OnImportProgress) -> None:
        request, questions = terms.request, terms.questions or ()
        configured = None if request.config is None else ConfiguredRun(request.config, questions)
        self._terms, self._files, self._on_progress = terms, files, on_progress
        self._questions = {question.id: question for question in questions}
        self._checked: set[str] = set()
        self._sample = Reservoir()
        self.gathering = RecordGatherer(
            configured, request.left_out, request.further, repeats_are_samples=request.repeats_are_samples
        )
        self.trials = 0
        self.scorers: dict[str, tuple[str, Sequence[str]]] = {}
        """By task: the scorer whose grades count, and the others in the files."""

    async def read_all(self, take: Take) -> None:
        """Pass all trials to `take`, in batches."""
        async with AsyncExitStack() as stack:
            given, rubric = self._terms.grader, self._terms.rubric
            pool: Grading | None = None
            if given is not None:
                pool = await stack.enter_async_context(GradingPool(given, rubric, self._worker_settings))
            grader = RecordGrader(rubric, pool, declared=self._terms.request.config is not None)
            batch, size = list[Record](), 0
            for number, file in enumerate(self._files):
                self.gathering.next_file(file)
                for logged in read_records(file):
                    for record in self.gathering.take(file, logged):
                        self._require_question(record)
                        batch.append(record)
                        size += _text_size(record)
                    if len(batch) >= BATCH_SIZE or size >= MOST_BYTES:
                        await self._grade_batch(batch, grader, take)
                        batch, size = [], 0
                        self._on_progress((number + file.share) / len(self._files), self.trials)
            await self._grade_batch(batch, grader, take)
            for task, scorer in grader.scorers.items():
                found = {name for file in self._files for name in file.scores.get(task, ())}
                self.scorers[task] = scorer, sorted(found - {scorer})
        self.gathering.require_left_out()
        if not self.trials:
            named = ", ".join(str(file.path) for file in self._files[:3])
            reasons = sorted({why for reasons_of_model in self.gathering.missing.values() for why in reasons_of_model})
            why = "; ".join(reasons[:3]) or "everything was left out"
            raise LogError(f"{named}: there are no trials: {why}")

    async def _grade_batch(self, batch: list[Record], grader: RecordGrader, take: Take) -> None:
        trials = await grader.trials(batch, self._questions)
        take(trials)
        for record, trial in zip(batch, trials, strict=True):
            question, given = self._questions[record.question], self._terms.grader
            # an Inspect task's scores only come with its samples
            by_task = record.of_task and given is not None and find_grader(given, question).comes_with_answer
            is_short = record.has_text and len(trial.answer.text) > 0 and _text_size(record) <= MAX_SAMPLED_CHARACTERS
            if is_short and trial.category is not None and not by_task:
                self._sample.offer(GradedAnswer(question, trial.answer, trial.category))
        self.trials += len(batch)

    async def compared(self) -> tuple[GraderOptions, Agreement | None]:
        """The likely grader, or that of the configuration, and how it grades a sample if it does not reproduce it."""
        config, terms, sample = self._terms.request.config, self._terms, self._sample.answers
        if terms.grader is not None and config is None:
            return terms.grader, None
        grader = terms.grader or likely_grader(self.gathering.models.values())
        if any(grader.key_problem(graded.question) for graded in sample):
            return grader, None  # without answer keys nothing can be graded, so the run cannot continue
        result = await agreement(grader, terms.rubric, sample, self._worker_settings)
        return grader, None if result.all_agree else result

    def _require_question(self, record: Record) -> None:
        """Add the question; raises `LogError` if the grader cannot use its key."""
        key, name = record.question, record.question.rpartition(KEY_SEPARATOR)[2]
        if key in self._checked:
            return
        self._checked.add(key)
        question, grader = self._questions.setdefault(key, Question(name, *record.asked)), self._terms.grader
        problem = None if grader is None else grader.key_problem(question)
        if grader is not None and problem is not None:
            kind = getattr(grader, "kind", "")
            raise LogError(f"{record.place}: question {name!r} {problem} (the grader {kind})")

    @property
    def _worker_settings(self) -> WorkerSettings:
        config = self._terms.request.config
        return WorkerSettings() if config is None else config.worker_settings


def _text_size(record: Record) -> int:
    """Characters of a trial's answer and reasoning."""
    return 0 if record.answer is None else len(record.answer.text) + len(record.answer.reasoning or "")


def _configured_metric(grader: GraderOptions | None) -> str | None:
    """The metric that counts in a run of a task of lm-evaluation-harness; None for any other grader."""
    if not isinstance(grader, Python) or grader.function != LM_EVAL_GRADE:
        return None
    metric = grader.options.get("metric")
    return metric if isinstance(metric, str) else None
