"""Rehearsal of a dry run: two real answers of each model in each benchmark, graded as the run would grade them.

The answers are the first trials of these questions, and are kept for the run (`record.dry_run`).
"""

import asyncio
import shutil
import tempfile
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError, GraderError
from adaptive_eval.base.seeds import trial_seed
from adaptive_eval.config.prepare import PreparedRun, make_lane
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.types import Grade
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.types import Question
from adaptive_eval.report.dry_run import dry_run_folder
from adaptive_eval.running.answer_keys import open_run_graders
from adaptive_eval.running.serving import opened_endpoints
from adaptive_eval.scheduler.grading import Grading, grade_or_error, make_record
from adaptive_eval.store import CommitBatch, Store, TrialRecord
from adaptive_eval.store.locate import make_directory
from adaptive_eval.store.redaction import redact_trial
from adaptive_eval.supply.types import Lane

ANSWERS = 2
"""Answers of each model, to the first questions of each benchmark: one may be an exception."""
LONGEST_WAIT = 600.0
"""Seconds that an answer or its grade may take here; a run waits longer, for as many attempts as it may make."""


class TriedAnswer(NamedTuple):
    """A real answer, graded as the run would grade it, or why there is none."""

    model: str
    question: Question
    answer: Answer | EndpointError
    grade: Grade | GraderError | None
    record: TrialRecord | None = None
    """The answer as a trial of the run; None if there is no answer, or Inspect has logged it elsewhere."""


def keep_answers(prepared: PreparedRun, directory: Path, tried: Sequence[TriedAnswer]) -> int:
    """Keep the answers for the run in `directory`, in place of those of an earlier dry run; returns how many.

    Raises `StoreError` if the run could not begin there.
    """
    records = [one.record for one in tried if one.record is not None]
    folder = dry_run_folder(directory)
    if folder.exists():
        shutil.rmtree(folder)
    if records:
        make_directory(directory)
        with closing(Store.open(folder, prepared.header, run_redactor(prepared.config)).store) as store:
            store.commit(CommitBatch(trials=records))
    return len(records)


async def try_answers(prepared: PreparedRun, models: Collection[str]) -> list[TriedAnswer]:
    """Ask these models, whose servers are up, the first questions, with the seeds of their first trials. Models with a
    batch service are asked directly, since a batch takes too long."""
    first = _first_questions(prepared)
    chosen = [number for number, name in enumerate(prepared.models) if name in models]
    config = prepared.config
    direct = tuple(config.models[number].model_copy(update={"batch": None}) for number in chosen)
    asked = config.model_copy(update={"models": direct})
    with tempfile.TemporaryDirectory(prefix="adaptive-eval-rehearsal-") as logs:
        redactor = run_redactor(config)
        opening = opened_endpoints(asked, Path(logs), redactor=redactor, patient=False)
        async with open_run_graders(prepared) as pool, opening as serving:
            lanes = [
                make_lane(prepared, number, endpoint)
                for number, endpoint in zip(chosen, serving.endpoints, strict=True)
            ]
            each = [(lane, at) for lane in lanes for at in first]
            tried = await asyncio.gather(*(_try(lane, at, prepared.questions[at], pool, redactor) for lane, at in each))
    logged = {model.name for model in direct if model.inspect is not None}
    return [one._replace(record=None) if one.model in logged else one for one in tried]


def _first_questions(prepared: PreparedRun) -> list[int]:
    """The indices of the first questions of each benchmark."""
    found: dict[str, list[int]] = {}
    for at, question in enumerate(prepared.questions):
        found.setdefault(benchmark_named(question.id) if prepared.config.benchmarks else "", []).append(at)
    return [at for each in found.values() for at in each[:ANSWERS]]


async def _try(lane: Lane, at: int, question: Question, pool: Grading, redactor: Redactor) -> TriedAnswer:
    seed = trial_seed(lane.seed_base(at), 0)
    try:
        async with asyncio.timeout(LONGEST_WAIT):
            (answer,) = await lane.endpoint.sample(lane.prompt(at), range(seed, seed + 1))
    except EndpointError as error:
        redactor.error(error)
        return TriedAnswer(lane.name, question, error, None)
    except TimeoutError:
        servers = ", ".join(replica.url for replica in lane.endpoint.stats.replicas) or "its server"
        late = f"{lane.name} has not answered within {LONGEST_WAIT / 60:g} minutes at {servers}; a run may wait longer"
        return TriedAnswer(lane.name, question, EndpointError(late), None)
    try:
        async with asyncio.timeout(LONGEST_WAIT):
            grade = await grade_or_error(pool.grade, answer, question.for_trial(0))
    except TimeoutError:
        grade = GraderError(f"its grade has not come within {LONGEST_WAIT / 60:g} minutes; a run may wait longer")
    record = redact_trial(make_record(lane, question, trial=0, round_=0, answer=answer, grade=grade), redactor)
    if isinstance(grade, GraderError):
        return TriedAnswer(lane.name, question, record.answer, GraderError(record.grader_error or ""), record)
    shown = replace(grade, signals=record.signals, extracted=record.extracted)
    return TriedAnswer(lane.name, question, record.answer, shown, record)
