"""Checks between grader, rubric, questions and models."""

from collections.abc import Callable, Iterator
from operator import attrgetter

from adaptive_eval.config.decisions import BudgetConfig
from adaptive_eval.config.listed_models import Models, asked_models, recorded_models
from adaptive_eval.config.normalise import INNER
from adaptive_eval.config.pace import is_known_by
from adaptive_eval.config.problems import KeyPath, Problem, did_you_mean
from adaptive_eval.config.reports import ReportConfig
from adaptive_eval.config.run import PriorConfig
from adaptive_eval.endpoints.types import KEEP_TOKENS
from adaptive_eval.graders.by_benchmark import ByBenchmark, find_rubric, graders_by_benchmark, graders_that_ask
from adaptive_eval.graders.comparing import REFERENCE
from adaptive_eval.graders.frozen import LENGTH_RATIO
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.rubric import FROM, RubricConfig, open_rubric
from adaptive_eval.graders.scoring import MOST_SUMS
from adaptive_eval.graders.types import ANSWER_SIGNALS, TOKEN_MEASURES, GraderOptions
from adaptive_eval.graders.verifier import Verifier
from adaptive_eval.questions.types import QuestionsConfig

NAME_IT = "name the field that holds it"


def check_metrics_binary(report: ReportConfig, rubric: RubricConfig) -> Iterator[Problem]:
    """Check that a report with metrics has a rubric of two categories."""
    if report.metrics and (categories := len(open_rubric(rubric).weights)) != 2:
        rule = "need a rubric of two categories, since each draw succeeds or fails"
        yield Problem(("report", "metrics"), rule, "remove them", f"{categories} categories")


def check_recorded_outcomes(models: Models, prior: PriorConfig | None) -> Iterator[Problem]:
    """Check that recorded models are not combined with R0."""
    if prior is not None and any(recorded_models(models)):
        yield Problem(("prior",), "cannot be combined with recorded models", "remove one of the two")


def check_rubric_signals(grader: GraderOptions, rubric: RubricConfig, models: Models) -> Iterator[Problem]:
    """Check that every signal that a category uses is given."""
    opened = open_rubric(find_rubric(grader, rubric))
    for benchmark, one in graders_by_benchmark(grader).items():
        known = one.gives | ANSWER_SIGNALS | {LENGTH_RATIO}
        answers = f"no answer to {benchmark}" if benchmark else "no answer"
        for name in sorted(opened.needs - known) if one.gives else ():
            mend = did_you_mean(name, known, f"this grader's are {', '.join(sorted(one.gives))}")
            yield Problem(("rubric",), f"needs the signal {name}, which {answers} will have", mend)
    if opened.lacks and rubric.source_run is None:
        rule = f"must be given: the rubric compares with {', '.join(opened.lacks)}"
        mend = f"name an earlier run with these signals, as in `thresholds: {{{FROM}: runs/pilot}}`, or give numbers"
        yield Problem(("rubric", "thresholds"), rule, mend)
    if not opened.lacks and rubric.source_run is not None:
        rule = "has nothing to fit: the rubric compares with numbers alone"
        yield Problem(("rubric", "thresholds", FROM), rule, "remove it")
    for number, model in asked_models(models):
        path: KeyPath = ("models", number)
        if "completion_bpt" in opened.needs and not model.sampling.logprobs:
            yield Problem((*path, "sampling", "logprobs"), "must be true: the rubric needs completion_bpt")
        if (needs := sorted(opened.needs & set(TOKEN_MEASURES))) and model.sampling.logprobs != KEEP_TOKENS:
            yield Problem((*path, "sampling", "logprobs"), f"must be tokens: the rubric needs {needs[0]}")
        if "prompt_bpt" in opened.needs and model.prompt_logprobs is None:
            yield Problem((*path, "prompt_logprobs"), "must be given: the rubric needs prompt_bpt", "for vLLM: vllm")


def check_asked_grader_cost(budget: BudgetConfig, grader: GraderOptions) -> Iterator[Problem]:
    """Check that the prices and limits are given from which caps reserve the cost of grading."""
    needs = (
        ("usd", budget.usd, "price"),
        ("usd", budget.usd, "sampling.max_tokens"),
        ("tokens", budget.tokens, "sampling.max_tokens"),
        ("gpu_hours", budget.gpu_hours, "gpus"),
    )
    for benchmark, one in graders_that_ask(grader).items():
        of = f" of {benchmark}" if benchmark else ""
        for cap, key in ((cap, key) for cap, limit, key in needs if limit is not None):
            for number, seat in enumerate(one.seats):
                is_free = key == "price" and not is_known_by(seat.host)
                if attrgetter(key)(seat) is None and not is_free:
                    rule = f"needs {key} of the {one.kind}{of}, to reserve what a verdict may cost"
                    at = (
                        f"grader.{key}"
                        if "." in key
                        else f"grader.server{f'.{number}' if len(one.seats) > 1 else ''}.{key}"
                    )
                    yield Problem(("budget", cap), rule, f"add {at}, or remove budget.{cap}")


def check_judge_inputs(grader: GraderOptions, rubric: RubricConfig, questions: QuestionsConfig) -> Iterator[Problem]:
    """Check that a judge has the answers to compare with, and few enough possible scores for categories."""
    if isinstance(grader, ByBenchmark):
        yield from _check_each_benchmark(lambda own, one: check_judge_inputs(one, rubric, own), questions, grader)
    if not isinstance(grader, Judge):
        return
    fields = (REFERENCE, *questions.fields.metadata)
    if isinstance(grader.against, str) and grader.against not in fields:
        mend = f"it is one of {', '.join(fields)}; name the field under questions.fields.metadata"
        yield Problem(("grader", "against"), "must be a field of the questions that is kept", mend, grader.against)
    if grader.against == REFERENCE and questions.fields.answer is None:
        yield Problem(("questions", "fields", "answer"), "must be given: the judge compares with it", NAME_IT)
    if rubric == RubricConfig() and grader.form.needs_rubric:
        rule = f"have more than {MOST_SUMS} different sums, too many for a category each"
        mend = "use fewer levels, or declare a rubric with categories, as in `when: {score: {at_least: 0.8}}`"
        yield Problem(("grader", "scores"), rule, mend)


def _check_each_benchmark(
    check: Callable[[QuestionsConfig, GraderOptions], Iterator[Problem]],
    questions: QuestionsConfig,
    grader: ByBenchmark,
) -> Iterator[Problem]:
    """Run a check for each benchmark's questions and grader."""
    for name, own in questions.benchmarks.items():
        for problem in check(own, grader.graders[name]) if name in grader.graders else ():
            section, *keys = problem.path
            yield problem._replace(path=(section, INNER[str(section)], name, *keys))


def check_answer_keys_given(questions: QuestionsConfig, grader: GraderOptions) -> Iterator[Problem]:
    """Check that a grader that compares with an answer key has one."""
    if isinstance(grader, ByBenchmark):
        yield from _check_each_benchmark(check_answer_keys_given, questions, grader)
        return
    reads_key = grader.reads_key or (isinstance(grader, Verifier) and grader.key_grader is not None)
    if questions.fields.answer is None and reads_key:
        yield Problem(
            ("questions", "fields", "answer"), "must be given: this grader compares with an answer key", NAME_IT
        )
