"""Check that outcomes of an earlier run, for recorded models or R0, mean the same in this one."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from adaptive_eval.config.benchmarks import prompt_for
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.graders.rubric import Rubric, SchemaRubric
from adaptive_eval.questions import Question
from adaptive_eval.questions.prompts import render
from adaptive_eval.record.restore import StoredRun
from adaptive_eval.store import TrialsImported, events_of_kind
from adaptive_eval.store.events.event import Change
from adaptive_eval.store.same_meaning import differences

REGRADE = "`adaptive-eval regrade` it with this configuration"


def rubric_problems(ours: Rubric, theirs: Rubric) -> Iterator[str]:
    """Reasons why categories of an earlier run mean something else under our rubric."""
    if theirs.names != ours.names or theirs.weights != ours.weights:
        there, here = (", ".join(one.names) for one in (theirs, ours))
        yield f"was graded by another rubric ({there}, not {here}); `adaptive-eval regrade` it with this one"
        return
    fitted = (
        one.lacks or one.medians or (isinstance(one, SchemaRubric) and one.schema.thresholds) for one in (ours, theirs)
    )
    if ours != theirs and any(fitted):
        yield (
            "was graded with other thresholds, so that its categories mean something else; take them from it, with "
            "`rubric: {fit: {run: ...}}`"
        )


def grading_problems(prepared: PreparedRun, earlier: StoredRun) -> Iterator[str]:
    """Reasons why the same answers might have other grades here."""
    theirs, ours = earlier.reader.header().meaning["grader"], prepared.header.meaning["grader"]
    if theirs != ours and not is_graded_by_logs(earlier):
        yield f"was graded otherwise, by another grader or one with other settings; {REGRADE}"
    for question, other in _common_questions(prepared, earlier):
        if question.answer and other.answer and question.answer != other.answer:
            yield f"was graded by another answer key to question {question.id!r}; {REGRADE}"


def prompt_problems(prepared: PreparedRun, earlier: StoredRun, sources: Mapping[str, str], mend: str) -> Iterator[str]:
    """Questions that the earlier run asked in other words; `sources` maps names of models here to those there."""
    ours, theirs = ({one.name: one for one in config.models} for config in (prepared.config, earlier.setup.config))
    common, imported = _common_questions(prepared, earlier), bool(events_of_kind(earlier.events, TrialsImported))
    for name, source in sources.items():
        for question, other in common if source in theirs else ():
            known = _question_as_sent(earlier.setup.config, theirs[source], other)
            sent = _question_as_sent(prepared.config, ours[name], question)
            if _prompts_differ(sent, known) and (not imported or _prompts_differ(question, other)):
                yield f"asked {source} something else as question {question.id!r}; {mend}"


def sampling_changes(prepared: PreparedRun, earlier: StoredRun, sources: Mapping[str, str]) -> Iterator[Change]:
    """Sampling settings that differ in the earlier run; imported logs need not have any."""
    theirs, ours = earlier.reader.header().models, prepared.header.models
    imported = bool(events_of_kind(earlier.events, TrialsImported))
    for name, source in sources.items():
        had, has = theirs.get(source, {}).get("sampling", {}), ours[name].get("sampling", {})
        if source in theirs and (had or not imported):
            yield from differences(had, has, name)


def _common_questions(prepared: PreparedRun, earlier: StoredRun) -> list[tuple[Question, Question]]:
    there = {question.id: question for question in earlier.setup.questions}
    return [(question, there[question.id]) for question in prepared.questions if question.id in there]


def _question_as_sent(config: RunConfig, model: ModelConfig, question: Question) -> Question:
    """The question with the rendered prompt that the model is sent, if the prompt is known."""
    sent = render(prompt_for(model.prompt, question, config.benchmarks), question, "completions").text
    return replace(question, prompt=sent or "") if question.prompt else question


def _prompts_differ(one: Question, other: Question) -> bool:
    """Whether the prompts of two questions are both known and differ."""
    known = bool(one.prompt and other.prompt)
    return known and (one.prompt, one.choices) != (other.prompt, other.choices)


def is_graded_by_logs(earlier: StoredRun) -> bool:
    """Whether grades come from imported logs: results then warn that the grader may differ."""
    return any(event.graded_by is None for event in events_of_kind(earlier.events, TrialsImported))
