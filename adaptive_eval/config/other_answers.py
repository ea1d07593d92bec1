"""Loads the questions of a run, with the answers of an earlier run that its judge compares with.

These answers are stored with the questions: reports, labels and regrading do not need the earlier run, and a resume
detects changes in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.comparing import AnswersOfModel
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.transcript import shortened
from adaptive_eval.questions import Question, load_questions
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.readers import FileRow
from adaptive_eval.questions.types import QuestionsConfig
from adaptive_eval.store import RunReader, TrialRecord
from adaptive_eval.store.database import is_run

NOT_THERE = frozenset({"timed_out", "unanswered"})


def load_run_questions(config: RunConfig) -> tuple[Question, ...]:
    """Load the questions of a run, with answers of an earlier run to compare with, if configured."""
    sections, rows = dict(config.questions.benchmarks) or {"": config.questions}, dict[str, list[FileRow]]()
    for name, task in config.inspect_tasks.items():
        if task is not None:
            sections[name], rows[name] = _samples(name, sections[name], task, config)
    section = sections.get("") or config.questions.model_copy(update={"benchmarks": sections})
    questions, grader = load_questions(section, folder=config.folder, seed=config.seed, rows=rows), config.grader
    if not isinstance(grader, Judge) or not isinstance(grader.against, AnswersOfModel):
        return questions
    others = read_answers(grader.against.run, grader.against.model, grader.longest)
    return tuple(replace(one, others=others.get(one.id, ())) for one in questions)


def _samples(
    name: str, section: QuestionsConfig, task: BenchmarkConfig, config: RunConfig
) -> tuple[QuestionsConfig, list[FileRow]]:
    """The samples of an Inspect task as rows of questions; if any lacks a target, none has an answer key."""
    # imported here: only runs of Inspect tasks start a process for their questions
    from adaptive_eval.inspect.process import list_task

    listed = list_task(name, task, config.folder, read_environment(config.folder))
    if not all(str(row["answer"]).strip() for row in listed):
        section = section.model_copy(update={"fields": section.fields.model_copy(update={"answer": None})})
    return section, [FileRow(f"sample {number}", row) for number, row in enumerate(listed, start=1)]


def read_answers(run: Path, model: str, longest: int) -> Mapping[str, tuple[str, ...]]:
    """The answers of a model in a run, by question, shortened to what a judge sees."""
    if not is_run(run):
        raise ConfigError(f"grader.against.run: {run} holds no run; name the directory of one")
    with RunReader.intact(run) as reader:
        models = reader.header().models
        if model not in models:
            known = ", ".join(models)
            raise ConfigError(f"grader.against.model: {run} has no model {model!r}; it has {known}")
        each: dict[str, list[TrialRecord]] = {}
        for record in reader.model_trials(model):
            each.setdefault(record.question, []).append(record)
    return {question: tuple(_texts(records, longest)) for question, records in each.items()}


def _texts(records: list[TrialRecord], longest: int) -> Iterator[str]:
    """Texts in the order of trials, up to the first missing trial; a timed-out or unanswered one counts as missing."""
    for number, record in enumerate(sorted(records, key=lambda one: one.trial)):
        if record.trial != number or NOT_THERE & record.answer.signals:
            return
        yield shortened(record.answer.text, longest)
