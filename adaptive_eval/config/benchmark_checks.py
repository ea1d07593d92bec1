"""Checks of a run with several benchmarks, or with tasks of Inspect, which ask the models and grade their answers."""

from collections.abc import Iterator

from adaptive_eval.config.benchmarks import BenchmarkPart
from adaptive_eval.config.decisions import ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.listed_models import Models, asked_models, valid_models
from adaptive_eval.config.problems import KeyPath, Problem
from adaptive_eval.config.reports import ReportConfig
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.core.registry import RULES
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.graders.by_benchmark import InspectScores, graders_by_benchmark
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.prompts import QUESTION_FIELDS, PromptConfig, template_problems
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


OWN_PROMPTS = "has no effect: the task of Inspect has its own prompts"
AS_INSPECT = "write how Inspect asks it under `config`, such as {temperature: 0.6, max_tokens: 2000}"


def check_inspect_benchmark(
    benchmark: BenchmarkConfig | None,
    benchmarks: Parts,
    models: Models,
    grader: GraderOptions | None = None,
) -> Iterator[Problem]:
    """Check that every model is asked by Inspect, which also gives the scores."""
    tasks = {one.name: one.benchmark for one in benchmarks} or {"": benchmark}
    if not any(tasks.values()):
        return
    for name, one in graders_by_benchmark(grader).items() if grader is not None else ():
        if tasks.get(name) is not None and not isinstance(one, InspectScores):
            path: KeyPath = ("grader", "graders", name) if name else ("grader",)
            yield Problem(path, "has no effect: the scorer of the task grades", "remove it")
    for number, part in enumerate(benchmarks):
        if part.benchmark is not None and part.prompt != PromptConfig():
            yield Problem(("benchmarks", number, "prompt"), OWN_PROMPTS, "remove it")
    for number, model in asked_models(models):
        path = ("models", number)
        if model.inspect is None:
            rule, mend = "must be given: the benchmark is a task of Inspect", "write its name there, as openai/gpt-x"
            yield Problem((*path, "inspect"), rule, mend)
        else:
            yield from _check_asked_model(model, path, has_prompt=None in tasks.values())


def _check_asked_model(model: ModelConfig, path: KeyPath, *, has_prompt: bool) -> Iterator[Problem]:
    """Refuse settings of prompts and sampling, which Inspect does not use."""
    if model.sampling != Sampling(max_tokens=model.sampling.max_tokens):
        rule = "may only have max_tokens, the limit on all tokens of a sample of Inspect"
        yield Problem((*path, "sampling"), rule, AS_INSPECT)
    if model.prompt != PromptConfig() and not has_prompt:
        yield Problem((*path, "prompt"), OWN_PROMPTS, "remove it")


def check_only_benchmark_asked(
    benchmark: BenchmarkConfig | None, benchmarks: Parts, models: Models, questions: QuestionsConfig | None = None
) -> Iterator[Problem]:
    """Check that keys for Inspect tasks are only used with one."""
    if benchmark is not None or any(one.benchmark for one in benchmarks):
        return
    mend = "add `benchmark: {inspect: package/task}`, or remove it"
    if questions is not None and questions.task is not None:
        yield Problem(("questions", "task"), "is filled in by a benchmark, and there is none", mend)
    for number, model in valid_models(models):
        if model.inspect is not None:
            yield Problem(("models", number, "inspect"), "is for tasks of Inspect, and there is no benchmark", mend)
