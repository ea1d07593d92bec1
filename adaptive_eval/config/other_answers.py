"""Loads the questions of a run, and the answers of an earlier run to which its judge compares.

These answers are stored with the questions, so reports, labels and regrading do not need the earlier run, and a resume
detects changes in it.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.by_benchmark import graders_by_benchmark
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.judge_forms import AnswersOfModel
from adaptive_eval.graders.transcript import shortened
from adaptive_eval.machine.trial import Trial
from adaptive_eval.questions import Question, load_questions
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.readers import FileRow
from adaptive_eval.questions.types import QuestionsConfig
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.read import LogReader

MISSING_SIGNALS = frozenset({"timed_out", "unanswered"})
"""Signals of trials without an answer."""


def load_run_questions(config: RunConfig) -> tuple[Question, ...]:
    """Load the questions of a run, with answers of an earlier run to compare with, if configured."""
    sections, rows = dict(config.questions.benchmarks) or {"": config.questions}, dict[str, list[FileRow]]()
    for name, task in config.inspect_tasks.items():
        if task is not None:
            sections[name], rows[name] = _samples(name, sections[name], task, config)
    section = sections.get("") or config.questions.model_copy(update={"benchmarks": sections})
    grader = config.grader
    keyless = [name for name, part in graders_by_benchmark(grader).items() if part.comes_with_answer]
    questions = load_questions(section, folder=config.folder, seed=config.seed, rows=rows, keyless=keyless)
    if not isinstance(grader, Judge) or not isinstance(grader.compare_to, AnswersOfModel):
        return questions
    others = read_answers(grader.compare_to.run, grader.compare_to.model, grader.max_answer_bytes)
    return tuple(replace(question, others=others.get(question.id, ())) for question in questions)


def _samples(
    name: str, section: QuestionsConfig, task: BenchmarkConfig, config: RunConfig
) -> tuple[QuestionsConfig, list[FileRow]]:
    """The samples of an Inspect task as rows of questions; if any lacks a target, none has an answer key."""
    # imported here: only Inspect tasks need it
    from adaptive_eval.inspect.process import list_task

    listed = list_task(name, task, config.folder, read_environment(config.folder))
    if not all(str(row["answer"]).strip() for row in listed):
        section = section.model_copy(update={"fields": section.fields.model_copy(update={"answer": None})})
    return section, [FileRow(f"sample {number}", row) for number, row in enumerate(listed, start=1)]


def read_answers(run: Path, model: str, longest: int) -> Mapping[str, tuple[str, ...]]:
    """The answers of a model in a run, by question, shortened to what a judge sees."""
    if not (run / DATABASE_FILE).exists():
        raise ConfigError(f"grader.compare_to.run: {run} is not a run directory; give the directory of a run")
    with closing(LogReader.open(run)) as reader:
        reader.database.require_intact()
        models, trials = reader.models(), dict[int, list[Trial]]()
        if model not in models:
            names = ", ".join(models)
            raise ConfigError(f"grader.compare_to.model: {run} has no model {model!r}; it has {names}")
        for _, trial in reader.trials("model = ? AND finish_reason IS NOT NULL", models[model]):
            trials.setdefault(trial.question, []).append(trial)
        keys = {number: key for key, number in reader.questions().items()}
    return {keys[question]: tuple(_texts(answers, longest)) for question, answers in trials.items()}


def _texts(trials: list[Trial], longest: int) -> Iterator[str]:
    """Texts in the order of trials, up to the first trial that is missing, timed out or unanswered."""
    for number, trial in enumerate(sorted(trials, key=lambda trial: trial.number)):
        if trial.number != number or trial.answer is None or MISSING_SIGNALS & trial.answer.signals:
            return
        yield shortened(trial.answer.text, longest)
