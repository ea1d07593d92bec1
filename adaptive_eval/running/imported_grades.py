"""Going on with imported trials whose grades no known grader gives: with one that does, or after grading all anew."""

import shlex
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from adaptive_eval.base.errors import RunChanged
from adaptive_eval.config.fingerprint import differences
from adaptive_eval.config.prepare import PreparedRun, stored_config, stored_questions
from adaptive_eval.graders.agreement import Agreement, GradedAnswer, Reservoir, agreement
from adaptive_eval.graders.registry import Logged
from adaptive_eval.graders.types import GraderOptions, MarkedAnswer
from adaptive_eval.machine.notes import note_of
from adaptive_eval.notes.grading import GraderChosen
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.thresholds import kept_rubric
from adaptive_eval.running.regrade import with_scores
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.write import RunStore


def adopt_grader(prepared: PreparedRun, directory: Path, comparison: Agreement) -> None:
    """Make the configuration's grader that of the stored run."""
    with closing(RunStore.attach(directory)) as store:
        stored = store.reader.header()
        header = _with_grader(stored, prepared.header)
        chosen = note_of(GraderChosen(comparison.grader, comparison.compared), {})
        changes = [*differences(stored.configuration, header.configuration)]
        store.regrade(lambda seq, trial: None, [chosen], header, changes)


async def require_agreement(prepared: PreparedRun, directory: Path) -> Agreement | None:
    """Grade a sample of the stored answers by the configuration's grader; None where the run has a grader already."""
    with RunReader.if_begun(directory) as reader:
        if reader is None:
            return None
        header = reader.header()
        if not isinstance(stored_config(header).grader, Logged):
            return None
        sample, events = _sample(reader, header, prepared.config.grader), reader.events()
    config = prepared.config
    rubric = kept_rubric(stored_config(header).rubric, events)
    comparison = await agreement(config.grader, rubric, sample, config.worker_settings)
    if not comparison.all_agree or not sample:
        summary = comparison.summary if sample else "no stored answer has a text that could be graded again"
        head = f"the grades in {directory} are those of its logs, and new answers may be graded otherwise: {summary}"
        examples = [f"  {example}" for example in comparison.examples]
        hint = (
            "Choose a grader that gives these grades, or have all stored answers graded by this one: "
            f"adaptive-eval regrade {shlex.quote(str(directory))} --config CONFIG"
        )
        raise RunChanged("\n".join([head, *examples, hint]))
    return comparison


def _sample(reader: RunReader, header: RunHeader, grader: GraderOptions) -> list[GradedAnswer]:
    questions = stored_questions(header)
    reservoir = Reservoir()
    for _, trial in reader.log.trials("category IS NOT NULL"):
        question = questions[trial.question]
        answer = with_scores(trial, question, grader).answer
        if answer is not None and trial.category is not None and (answer.text or isinstance(answer, MarkedAnswer)):
            reservoir.offer(GradedAnswer(question, answer, trial.category))
    return reservoir.answers


def _with_grader(stored: RunHeader, now: RunHeader) -> RunHeader:
    """The stored run with the grader of today; what else has changed is for the resume to judge."""
    meaning = {**stored.meaning, "grader": now.meaning["grader"]}
    configuration = {**stored.configuration, "grader": now.configuration["grader"]}
    return replace(stored, meaning=meaning, configuration=configuration)
