"""The answers of an earlier run that a judge compares with: trial by trial, as they stand when a run is prepared.

They are part of the questions from then on: stored with the run, so that nobody needs the earlier one to read it, to
label it or to grade it anew, and a resume says where they have changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from adaptive_eval.config.run import RunConfig
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.comparing import AnswersOfRun
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.transcript import shortened
from adaptive_eval.questions import Question, load_questions
from adaptive_eval.store import RunReader, TrialRecord
from adaptive_eval.store.whereabouts import is_run

TIMED_OUT = "timed_out"


def questions_of(config: RunConfig) -> tuple[Question, ...]:
    """The questions of a run, with what their answers are compared with, where that is in an earlier run."""
    questions, grader = load_questions(config.questions, folder=config.folder, seed=config.seed), config.grader
    if not isinstance(grader, Judge) or not isinstance(grader.against, AnswersOfRun):
        return questions
    found = answers_in(grader.against, grader.longest)
    return tuple(replace(one, others=found.get(one.id, ())) for one in questions)


def answers_in(against: AnswersOfRun, longest: int) -> Mapping[str, tuple[str, ...]]:
    """The answers of the model that is meant, by question, as much of each as a judge sees of it."""
    if not is_run(against.run):
        raise ConfigError(f"grader.against.run: {against.run} holds no run; name the directory of one")
    with RunReader.intact(against.run) as reader:
        models = reader.header().models
        if against.model not in models:
            known = ", ".join(models)
            raise ConfigError(f"grader.against.model: {against.run} has no model {against.model!r}; it has {known}")
        each: dict[str, list[TrialRecord]] = {}
        for record in reader.trials_of(against.model):
            each.setdefault(record.question, []).append(record)
    return {question: tuple(_texts(records, longest)) for question, records in each.items()}


def _texts(records: list[TrialRecord], longest: int) -> Iterator[str]:
    """By the number of the trial, from the first on until one is missing; what never came is none."""
    for number, record in enumerate(sorted(records, key=lambda one: one.trial)):
        if record.trial != number or TIMED_OUT in record.answer.signals:
            return
        yield shortened(record.answer.text, longest)
