"""Checks of the configuration of a run with several benchmarks."""

from collections.abc import Iterator

from adaptive_eval.config.benchmarks import BenchmarkPart
from adaptive_eval.config.decisions import ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.listed_models import Models, asked_models
from adaptive_eval.config.problems import KeyPath, Problem
from adaptive_eval.config.reports import ReportConfig
from adaptive_eval.core.registry import RULES
from adaptive_eval.questions.prompts import QUESTION_FIELDS, template_problems
from adaptive_eval.questions.types import QuestionsConfig

Parts = tuple[BenchmarkPart, ...]


def check_benchmark_names(benchmarks: Parts, questions: QuestionsConfig | None = None) -> Iterator[Problem]:
    """Check that names differ, and that `questions.benchmarks` is not written by hand."""
    names = [one.name for one in benchmarks]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield Problem(("benchmarks", number, "name"), "must differ from the other names", "rename it", repr(name))
    if questions is not None and questions.benchmarks and not benchmarks:
        mend = "write them as `benchmarks: [{name: ..., questions: ...}]`"
        yield Problem(("questions", "benchmarks"), "is filled in by `benchmarks`, and there is none", mend)


def check_gates(
    benchmarks: Parts, objective: ObjectiveConfig, stopping: StoppingConfig, trials: TrialsConfig
) -> Iterator[Problem]:
    """Check that benchmarks have gates only if the run has one, and that settings support them."""
    rule = RULES.get(str(stopping.rule))
    for number, part in enumerate(benchmarks):
        path: KeyPath = ("benchmarks", number, "gate")
        if part.gate is None:
            continue
        if not objective.gate:
            mend = "set `objective: {kind: baseline, baseline: NAME, gate: true}`, or remove it"
            yield Problem(path, "needs a gate of the run, too", mend)
        if rule is not None and not rule.correctable:
            yield Problem(path, f"needs a rule with a valid p-value, which {rule.name} lacks", "use rule: optimal")
        if stopping.familywise != "none":
            yield Problem(path, "shares the error with a model's other gates already", "remove stopping.familywise")
        if trials.seeds == "coupled":
            yield Problem(path, "cannot be combined with coupled seeds", "remove trials.seeds, or the gate")


def check_templates(benchmarks: Parts, models: Models, questions: QuestionsConfig) -> Iterator[Problem]:
    """Check that templates only name fields of the questions of their benchmark."""
    for number, part in enumerate(benchmarks):
        own = questions.benchmarks.get(part.name)
        known = (*QUESTION_FIELDS, *(() if own is None else own.fields.metadata))
        templates = dict.fromkeys(part.complete_prompt(model.prompt).template for _, model in asked_models(models))
        for problem in dict.fromkeys(told for one in templates for told in template_problems(one, known)):
            yield Problem(("benchmarks", number, "prompt"), "has a name in braces that is not a field", problem)


def check_groups(report: ReportConfig, questions: QuestionsConfig, trials: TrialsConfig) -> Iterator[Problem]:
    """Check that scores are broken down only by kept fields, and not with drawn questions."""
    each = [own.fields.metadata for own in (questions.benchmarks.values() if questions.benchmarks else (questions,))]
    for name in report.by:
        if not any(name in fields for fields in each):
            mend = "name the field under questions.fields.metadata"
            yield Problem(("report", "by"), "must be fields of the questions that are kept", mend, name)
    if report.by and trials.draw is not None:
        rule = "cannot be combined with trials.draw, which asks only some of the questions"
        yield Problem(("report", "by"), rule, "remove it, or trials.draw")


def check_question_weights(benchmarks: Parts, trials: TrialsConfig, report: ReportConfig) -> Iterator[Problem]:
    """Refuse settings without a formula for questions of unequal weight."""
    rule = "cannot be combined with several benchmarks: it needs questions of equal weight"
    given = ((("trials", "draw"), trials.draw is not None), (("report", "metrics"), bool(report.metrics)))
    for path, is_given in given if benchmarks else ():
        if is_given:
            yield Problem(path, rule, "remove it, or run the benchmarks one by one")
