"""Checks for benchmarks that are Inspect tasks, which ask the models and grade their answers."""

from collections.abc import Iterator

from adaptive_eval.config.benchmark_checks import Parts
from adaptive_eval.config.listed_models import Models, asked_models, valid_models
from adaptive_eval.config.problems import KeyPath, Problem
from adaptive_eval.config.run import ModelConfig, PriorEvidenceConfig
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.graders.by_benchmark import graders_by_benchmark
from adaptive_eval.graders.inspect_scores import InspectScores
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.prompts import PromptConfig
from adaptive_eval.questions.types import QuestionsConfig

OWN_PROMPTS = "has no effect: the task of Inspect has its own prompts"
AS_INSPECT = "write how Inspect asks it under `config`, such as {temperature: 0.6, max_tokens: 2000}"


def check_inspect_benchmark(
    benchmark: BenchmarkConfig | None,
    benchmarks: Parts,
    models: Models,
    grader: GraderOptions | None = None,
    prior_evidence: PriorEvidenceConfig | None = None,
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
    if prior_evidence is not None and prior_evidence.greedy:
        rule = "cannot be used with tasks of Inspect, which may call a model more than once in a sample"
        yield Problem(("prior_evidence", "greedy"), rule, "remove it, or name an earlier run")
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
        for key in ("inspect", "config", "args"):
            if getattr(model, key):
                yield Problem(("models", number, key), "is for tasks of Inspect, and there is no benchmark", mend)
