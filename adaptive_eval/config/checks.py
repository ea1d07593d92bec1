"""Checks across sections: the functions `check_...` of this module.

The parameters of a check are the sections it needs; those with a default are optional. A check runs if its sections are
valid. `names` are the names of all models in the file, so that a mistake in one model does not hide others.
"""

from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter, signature
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from adaptive_eval.config.benchmarks import BenchmarkPart
from adaptive_eval.config.commands import ANSWER_KEY, CommandKeys
from adaptive_eval.config.decisions import BY_TRIAL, BudgetConfig, ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.normalise import INNER
from adaptive_eval.config.pace import is_known_by, is_own_server
from adaptive_eval.config.problems import KeyPath, Problem, did_you_mean, shown_value
from adaptive_eval.config.reports import ReportConfig, read_metric
from adaptive_eval.config.run import SOURCES, ModelConfig, PriorConfig, RunConfig
from adaptive_eval.core.entries import Option
from adaptive_eval.core.objectives import CHEAPEST, PRECISION_OF, THRESHOLD
from adaptive_eval.core.registry import OBJECTIVES, RULES
from adaptive_eval.core.settings import MIN_BLOCK_SIZE
from adaptive_eval.endpoints.types import EndpointConfig, Sampling
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import (
    InspectScores,
    find_rubric,
    graders_by_benchmark,
    graders_that_ask,
)
from adaptive_eval.graders.frozen import LENGTH, LENGTH_RATIO
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.judge_forms import REFERENCE
from adaptive_eval.graders.reported import Reported
from adaptive_eval.graders.rubric import FROM, RubricConfig, open_rubric
from adaptive_eval.graders.scoring import MAX_SUMS
from adaptive_eval.graders.types import ANSWER_SIGNALS, GraderOptions
from adaptive_eval.graders.verifier import Verifier
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.prompts import (
    QUESTION_FIELDS,
    FewShotExample,
    PromptConfig,
    TemplateConfig,
    template_fields,
    template_problems,
)
from adaptive_eval.questions.types import QuestionsConfig

Names = tuple[str, ...]
Parts = tuple[BenchmarkPart, ...]
Models = tuple[ModelConfig | None, ...]
"""The models of the file in order; None for invalid models."""


def cross_check(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Run all checks whose required sections are valid."""
    for check in [value for name, value in globals().items() if name.startswith("check_")]:
        parameters = signature(check).parameters
        needed = {name for name, parameter in parameters.items() if parameter.default is Parameter.empty}
        if needed <= sections.keys():
            yield from check(**{name: sections[name] for name in parameters if name in sections})


def valid_models(models: Models) -> Iterator[tuple[int, ModelConfig]]:
    """The valid models with their indices."""
    return ((number, model) for number, model in enumerate(models) if model is not None)


def asked_models(models: Models) -> Iterator[tuple[int, ModelConfig]]:
    """The valid models that are not recorded, with their indices."""
    return ((number, model) for number, model in valid_models(models) if model.recorded is None)


def recorded_models(models: Models) -> Iterator[tuple[int, ModelConfig]]:
    """The valid recorded models, which are never asked, with their indices."""
    return ((number, model) for number, model in valid_models(models) if model.recorded is not None)


def check_served_once(models: Models) -> Iterator[Problem]:
    """Check that no model has two keys that say how it is served; a recorded one may say how it was."""
    for number, model in valid_models(models):
        keys = [key for key in (*SOURCES, "simulate") if getattr(model, key)]
        if keys and (source := SOURCES.get(keys[0])) is not None and source.hint is not None:
            for other in keys[1:]:
                if (keys[0], other) != ("recorded", "inspect"):
                    rule = f"has no effect on {source.model}"
                    yield Problem(("models", number, other), rule, f"remove {other}, or {keys[0]}")


def check_some_model_asked(objective: ObjectiveConfig, models: Models) -> Iterator[Problem]:
    recorded = list(recorded_models(models))
    if models and len(recorded) == len(models):
        hint = "add a new model; `adaptive-eval report` shows the results of earlier runs"
        yield Problem(("models",), "must include a model to ask, but all are recorded", hint)
    if objective.kind == "place" and None not in models and not recorded:
        rule = "place needs recorded models to compare the others with"
        yield Problem(("objective", "kind"), rule, "give models `recorded: RUN`, or use the objective ranking")


def check_enough_models(objective: ObjectiveConfig, names: Names) -> Iterator[Problem]:
    entry = OBJECTIVES.get(str(objective.kind))
    if entry is not None and len(names) < entry.least_models:
        yield Problem(
            ("models",), f"must be two or more for the objective {entry.name}", "add another", str(len(names))
        )
    for option, value in _given_options(objective, "models"):
        if value >= len(names):
            rule = f"must be below the number of models, which is {len(names)}"
            yield Problem(("objective", option.name), rule, "for all of them, use the objective ranking", str(value))


def _given_options(objective: ObjectiveConfig, *types: str) -> Iterator[tuple[Option, Any]]:
    """The configured options of a built-in objective that have one of these types."""
    entry = OBJECTIVES.get(str(objective.kind))
    for option in () if entry is None else entry.options:
        value = getattr(objective, option.name)
        if option.type in types and value is not None:
            yield option, value


def check_objective_models(objective: ObjectiveConfig, names: Names) -> Iterator[Problem]:
    named: list[tuple[KeyPath, str]] = []
    for option, value in _given_options(objective, "model", "pairs"):
        path: KeyPath = ("objective", option.name)
        if option.type == "model":
            named.append((path, value))
        else:
            named += [((*path, at, side), name) for at, pair in enumerate(value) for side, name in enumerate(pair)]
    for path, name in named:
        if name not in names:
            hint = did_you_mean(name, names, f"the models are {', '.join(names)}")
            yield Problem(path, "must be the name of a model", hint, shown_value(name))


COMMAND_KEYS = tuple(name for name in CommandKeys.model_fields if name != "command")
NOT_FOR_COMMANDS = {
    **{key: "" for key in EndpointConfig.model_fields if key not in ("base_url", "model")},
    "sampling": "give it to the models on servers",
    "price": "let the command print the usd of each answer",
    "gpus": "let the command print the usd of each answer",
    "api_key_env": "name the variable in env",
}
"""Keys that a command has no use for, with what to do instead of removing them."""


def check_commands(
    models: Models, questions: QuestionsConfig | None = None, grader: GraderOptions | None = None
) -> Iterator[Problem]:
    """Check that models with a command have keys of commands, and others have none."""
    for number, model in asked_models(models):
        path: KeyPath = ("models", number)
        if model.command is None:
            for key in COMMAND_KEYS:
                if key in model.model_fields_set:
                    yield Problem((*path, key), "is for a model with a command", "remove it, or add `command`")
            graders = {} if grader is None else graders_by_benchmark(grader)
            if any(isinstance(part, Reported) for part in graders.values()):
                rule = f"reported takes the scores that commands report, and {model.name} is no command"
                yield Problem(("grader",), rule, "choose a grader for what they answer, such as numeric")
            continue
        for key, hint in NOT_FOR_COMMANDS.items():
            if getattr(model, key) != ModelConfig.model_fields[key].get_default(call_default_factory=True):
                yield Problem((*path, key), "has no effect on a command", hint or "remove it")
        sections = () if questions is None else (questions.benchmarks.values() or (questions,))
        fields = {"choices", "cluster", ANSWER_KEY, *(name for part in sections for name in part.fields.metadata)}
        for field in model.question_fields or ():
            if questions is not None and field not in fields:
                hint = "name it in questions.fields.metadata, too"
                yield Problem((*path, "question_fields"), "must be fields of the questions", hint, shown_value(field))


def check_rules_fit_objective(objective: ObjectiveConfig, stopping: StoppingConfig) -> Iterator[Problem]:
    asked = OBJECTIVES.get(str(objective.kind))
    if asked is None:
        return
    rule = RULES.get(str(stopping.rule))
    if rule is not None and rule.only_for and asked.name not in rule.only_for:
        requirement = f"{rule.name} is for the {_objectives(rule.only_for)}"
        yield Problem(("stopping", "rule"), requirement, rule.instead, asked.name)
    if rule is not None and rule.lenient and not stopping.delta:
        hint = "write how far behind a pick may be, as in `delta: 2%`, or use `rule: optimal`"
        yield Problem(("stopping", "delta"), f"must be above 0 for the rule {rule.name}", hint)
    if stopping.familywise == "holm" and asked.own_rule is not None and not asked.own_rule.correctable:
        hint = "each score has its own interval: remove familywise"
        yield Problem(("stopping", "familywise"), "is for objectives that compare scores", hint, asked.name)


def _objectives(names: Sequence[str]) -> str:
    return f"objective{'s' if len(names) > 1 else ''} {' and '.join(names)}"


def check_values_on_scale(
    objective: ObjectiveConfig, stopping: StoppingConfig, rubric: RubricConfig
) -> Iterator[Problem]:
    weights = open_rubric(rubric).weights
    low, high = min(weights), max(weights)
    widths: dict[KeyPath, float] = {("stopping", "delta"): stopping.delta}
    widths |= {("objective", option.name): value for option, value in _given_options(objective, "difference", "margin")}
    for path, width in widths.items():
        if width >= high - low:
            rule = f"must be a difference of scores, which run from {low:g} to {high:g}"
            yield Problem(path, rule, "for two percentage points write 0.02 or 2%", f"{width:g}")
    for option, value in _given_options(objective, "score"):
        if not low <= value <= high:
            rule = f"must be a score, from {low:g} to {high:g}"
            yield Problem(("objective", option.name), rule, "for 60 percent write 0.6 or 60%", f"{value:g}")


def check_templates(
    questions: QuestionsConfig, prompt: PromptConfig, models: Models, benchmarks: Parts
) -> Iterator[Problem]:
    """Check that templates only have fields of the questions that they are for."""
    templates: dict[tuple[KeyPath, str], Sequence[str]] = {}
    for number, part in enumerate(benchmarks):
        fields = _template_fields(questions.benchmarks.get(part.name))
        for at, model in asked_models(models):
            complete = part.complete_prompt(prompt.with_template(model.prompt))
            place: KeyPath = ("benchmarks", number, "prompt")
            templates[place, complete.template] = fields
            is_own = complete.template == model.prompt.template
            at_fault = ("models", at, "prompt", "template") if is_own else place
            yield from _unfilled_by_examples(complete, at_fault, "few_shot")
    if not benchmarks:
        fields = _template_fields(questions)
        templates[("prompt", "template"), prompt.template] = fields
        for at, model in valid_models(models):
            place = ("models", at, "prompt", "template")
            templates[place, model.prompt.template] = fields
            yield from _unfilled_by_examples(prompt.with_template(model.prompt), place, "prompt.few_shot")
    problems = (
        (path, problem) for (path, text), fields in templates.items() for problem in template_problems(text, fields)
    )
    for path, problem in dict.fromkeys(problems):
        yield Problem(path, "has a name in braces that is not a field", problem)


def _unfilled_by_examples(prompt: PromptConfig, path: KeyPath, key: str) -> Iterator[Problem]:
    """A problem if the template has fields that the examples of the prompt lack."""
    lacking = sorted(template_fields(prompt.template) - FewShotExample.model_fields.keys())
    if prompt.few_shot and lacking:
        yield Problem(path, f"has {', '.join(lacking)}, which {key} has not", "leave it out of the template")


def _template_fields(section: QuestionsConfig | None) -> Sequence[str]:
    return QUESTION_FIELDS if section is None else (*QUESTION_FIELDS, *section.fields.metadata)


def check_budget_countable(
    budget: BudgetConfig, models: Models, grader: GraderOptions | None = None
) -> Iterator[Problem]:
    """Check that caps can count every model; for a cap on USD, the user's own servers cost nothing."""
    asked = [model for _, model in asked_models(models)]
    on_servers = [model for model in asked if model.command is None]  # commands say what they cost
    unpriced = [model for model in on_servers if model.price is None and not is_own_server(model)]
    without_gpus = [model for model in on_servers if model.gpus is None]
    asking = () if grader is None else graders_that_ask(grader).values()
    seats = [seat for judge in asking for seat in judge.seats]
    rule = "needs {} of every model, to reserve what a trial may cost, but {} none"
    if budget.usd is not None and unpriced:
        own = "" if any(model.inspect is not None for model in unpriced) else ", 0 on a server of your own"
        hint = f"add it{own} (for --model: --price NAME=IN/OUT), or remove budget.usd"
        yield Problem(("budget", "usd"), rule.format("price", _have(unpriced)), hint)
    elif (
        budget.usd is not None
        and len(on_servers) == len(asked)
        and all(price is None for price in (*(model.price for model in asked), *(seat.price for seat in seats)))
    ):
        counts = "counts nothing, since every model is on a server of your own and none has a price"
        hint = "limit gpu_hours, wall_time, tokens or trials instead, or add a price"
        yield Problem(("budget", "usd"), counts, hint)
    if budget.gpu_hours is not None and without_gpus:
        hint = "add it, 0 where no GPU is yours, or remove budget.gpu_hours"
        yield Problem(("budget", "gpu_hours"), rule.format("gpus", _have(without_gpus)), hint)
    elif budget.gpu_hours is not None and not any(model.gpus for model in asked) and not any(s.gpus for s in seats):
        counts = "counts nothing, since no model has GPUs of yours"
        yield Problem(("budget", "gpu_hours"), counts, "limit usd, wall_time, tokens or trials instead")


def _have(models: Sequence[ModelConfig]) -> str:
    """Subject and verb of a sentence on what models have."""
    return f"{', '.join(model.name for model in models)} {'has' if len(models) == 1 else 'have'}"


def check_costs_comparable(
    objective: ObjectiveConfig, stopping: StoppingConfig, models: Models, grader: GraderOptions | None = None
) -> Iterator[Problem]:
    """Check that the answers of all models have a cost in USD, as the choice of the cheapest needs."""
    if objective.kind != CHEAPEST.name:
        return
    kind: KeyPath = ("objective", "kind")
    gpu_hour = objective.arguments.get("gpu_hour")
    on_servers = (model for _, model in asked_models(models) if model.command is None)  # commands say what they cost
    if lacking := [model for model in on_servers if not _has_cost(model, gpu_hour)]:
        rule = f"cheapest compares what answers cost, but {_have(lacking)} no price above 0"
        hint = (
            "add `price` (for --model: --price NAME=IN/OUT), or for your own server both `gpus` and objective.gpu_hour"
        )
        yield Problem(kind, rule, hint)
    if recorded := [model.name for _, model in recorded_models(models)]:
        hint = "ask them, or use the objective place"
        yield Problem(kind, f"cheapest needs models that are asked, but {', '.join(recorded)} is recorded", hint)
    for benchmark, asked in graders_that_ask(grader).items() if grader is not None else ():
        if any(_has_cost(seat, gpu_hour) for seat in asked.seats):
            whose = f" of {benchmark}" if benchmark else ""
            rule = f"cheapest would count the verdicts of the {asked.kind}{whose} as a cost of the models"
            hint = "remove price and gpus of its server; then its verdicts cost nothing, and no limit covers them"
            yield Problem(kind, rule, hint)
    if stopping.delta:
        yield Problem(("stopping", "delta"), "is not for the objective cheapest", "write objective.delta instead")
    if stopping.familywise != "none":
        rule = "is not for the objective cheapest, which shares one error among all models"
        yield Problem(("stopping", "familywise"), rule, "remove it")


def _has_cost(asked: ModelConfig | AskedGrader, gpu_hour: float | None) -> bool:
    has_price = asked.price is not None and not asked.price.is_zero
    return has_price or bool(asked.gpus and gpu_hour)


def check_simulation(questions: QuestionsConfig, models: Models = ()) -> Iterator[Problem]:
    world_models: tuple[str, ...] | None = None
    if questions.world is not None:
        from adaptive_eval.simulate.worlds import WORLDS  # imported here: it is slow to load

        if questions.world in WORLDS:
            world_models = WORLDS[questions.world]().models
        else:
            hint = did_you_mean(questions.world, WORLDS, f"the worlds are {', '.join(WORLDS)}")
            rule = "must be a world of the simulator"
            yield Problem(("questions", "world"), rule, hint, shown_value(questions.world))
    for number, model in asked_models(models):
        path: KeyPath = ("models", number, "simulate")
        hosts = {urlsplit(url).hostname for url in model.replicas}
        if model.simulate and questions.world is None:
            yield Problem(path, "needs the questions of a world", "set `questions: {world: coins}`")
        elif model.simulate and world_models is not None and model.model not in world_models:
            rule, hint = f"needs a model of the world {questions.world}", f"its models are {', '.join(world_models)}"
            yield Problem(path, rule, hint, shown_value(model.model))
        elif questions.world is not None and not (model.simulate or hosts <= {"127.0.0.1", "localhost"}):
            hint = "set `simulate: true`, give the address of an `adaptive-eval simulate`, or real questions"
            yield Problem(path, "must be true: a world's questions mean nothing to a real model", hint)


# -- drawn questions and coupled seeds ---------------------------------------------------------------------------------


WORTH_DRAWING = 2000
"""Number of questions from which drawing is suggested. After one trial of each of 2,000 questions, two models that
differ on a third of them are told apart half of the time if their scores differ by 2.11 sqrt(1/3) / sqrt(2000), or 2.7
points."""


def may_draw(config: RunConfig) -> bool:
    """Whether trials.draw could be set without a conflict."""
    trials = config.trials.model_copy(update={"draw": MIN_BLOCK_SIZE, "optimize": "cost"})
    beginning = config.models, config.prior, config.report
    return config.trials.draw is None and not [*check_drawn(trials, config.objective, config.stopping, *beginning)]


def check_drawn(
    trials: TrialsConfig,
    objective: ObjectiveConfig,
    stopping: StoppingConfig,
    models: Models = (),
    prior: PriorConfig | None = None,
    report: ReportConfig | None = None,
    questions: QuestionsConfig | None = None,
) -> Iterator[Problem]:
    """Check that drawn questions are shuffled and asked once, and decisions compare averages of asked models."""
    if trials.draw is None:
        return
    remove, change = "remove it, or trials.draw", "change it, or remove trials.draw"
    if trials.optimize not in ("auto", "cost"):
        rule = "must be answers with trials.draw, which asks all models block by block"
        yield Problem(("trials", "optimize"), rule, "remove it", trials.optimize)
    entry = OBJECTIVES.get(str(objective.kind))
    if entry is not None and (entry.own_rule is not None or entry.name in ("threshold", "place")):
        rule = "must compare models that are all asked, since trials.draw compares their answers question by question"
        yield Problem(("objective", "kind"), rule, change, entry.name)
    chosen = RULES.get(str(stopping.rule))
    if chosen is not None and chosen.estimator != "average":
        yield Problem(
            ("stopping", "rule"), "compares Bayes@N, which needs trials of all questions", change, chosen.name
        )
    rule = "cannot be combined with trials.draw, which begins with questions that no model was asked"
    if prior is not None:
        yield Problem(("prior",), rule, remove)
    for number, _ in recorded_models(models):
        yield Problem(("models", number, "recorded"), rule, remove)
    if trials.seeds == "coupled":
        rule = "must not be coupled with trials.draw, which compares models question by question"
        yield Problem(("trials", "seeds"), rule, remove, trials.seeds)
    if report is not None and report.metrics:
        rule = "cannot be combined with trials.draw: a metric needs several trials of every question"
        yield Problem(("report", "metrics"), rule, remove)
    if questions is not None and not questions.shuffle:
        rule = "must be true with trials.draw, whose first questions stand for all of them"
        yield Problem(("questions", "shuffle"), rule, "add `shuffle: true` to questions, or remove trials.draw")


COUPLED_OBJECTIVES = (*BY_TRIAL, PRECISION_OF.name, THRESHOLD.name)
"""Objectives that compare trial by trial, and those that compare no models."""


def check_coupled(
    trials: TrialsConfig, objective: ObjectiveConfig, stopping: StoppingConfig, prior: PriorConfig | None = None
) -> Iterator[Problem]:
    """Check that comparisons are fixed, trials have numbers, and variances suit differences."""
    if trials.seeds != "coupled":
        return
    if str(objective.kind) not in COUPLED_OBJECTIVES:
        rule = f"coupled is for the objectives {', '.join(COUPLED_OBJECTIVES[:-1])} and {COUPLED_OBJECTIVES[-1]}"
        yield Problem(("trials", "seeds"), rule, "remove it, or change objective.kind", str(objective.kind))
    if stopping.prior != "self":
        rule = "compares Bayes@N, and `trials.seeds: coupled` compares the differences of two models"
        yield Problem(("stopping", "rule"), rule, "change it, or remove `trials.seeds`", stopping.rule)
    if prior is not None:
        rule = "cannot be combined with `trials.seeds: coupled`, which compares trial by trial: R0 is only counts"
        yield Problem(("prior",), rule, "remove it, or `trials.seeds`")


# -- grader, rubric and questions --------------------------------------------------------------------------------------


SET_KEY_FIELD = "set it to the field with the answer key"


def check_metrics_binary(report: ReportConfig, rubric: RubricConfig) -> Iterator[Problem]:
    """Check that a report with metrics has a rubric of two categories."""
    if report.metrics and (categories := len(open_rubric(rubric).weights)) != 2:
        rule = "need a rubric of two categories, since each draw succeeds or fails"
        yield Problem(("report", "metrics"), rule, "remove the metrics", f"{categories} categories")


def check_metrics_have_trials(report: ReportConfig, trials: TrialsConfig, models: Models) -> Iterator[Problem]:
    """Check that a model may get as many trials of a question as each metric needs; recorded models may have more."""
    for number, name in enumerate(() if any(recorded_models(models)) else report.metrics):
        if (match := read_metric(name)) is not None and int(match[2]) > trials.max:
            rule = f"needs {match[2]} trials of every question, but trials.max is {trials.max}"
            yield Problem(("report", "metrics", number), rule, f"raise trials.min and trials.max, or remove {name}")


def check_recorded_outcomes(models: Models, prior: PriorConfig | None) -> Iterator[Problem]:
    """Check that recorded models are not combined with R0."""
    if prior is not None and any(recorded_models(models)):
        yield Problem(("prior",), "cannot be combined with recorded models", "remove one of the two")


def check_rubric_signals(grader: GraderOptions, rubric: RubricConfig, models: Models) -> Iterator[Problem]:
    """Check that answers will have every signal that a category uses."""
    opened = open_rubric(find_rubric(grader, rubric))
    for benchmark, benchmark_grader in graders_by_benchmark(grader).items():
        signals = benchmark_grader.gives | ANSWER_SIGNALS | {LENGTH_RATIO}
        answers = f"no answer to {benchmark}" if benchmark else "no answer"
        for name in sorted(opened.needs - signals) if benchmark_grader.gives else ():
            own_signals = ", ".join(sorted(benchmark_grader.gives))
            hint = did_you_mean(name, signals, f"this grader's signals are {own_signals}")
            yield Problem(("rubric",), f"needs the signal {name}, which {answers} will have", hint)
    if opened.lacks and rubric.source_run is None:
        rule = f"must be given: the rubric compares with {', '.join(opened.lacks)}"
        hint = f"name an earlier run with these signals, as in `thresholds: {{{FROM}: runs/pilot}}`, or give numbers"
        yield Problem(("rubric", "thresholds"), rule, hint)
    if not opened.lacks and rubric.source_run is not None:
        rule = "has nothing to fit: the rubric only compares with numbers"
        yield Problem(("rubric", "thresholds", FROM), rule, "remove it")
    for number, model in asked_models(models):
        path: KeyPath = ("models", number)
        if "completion_bpt" in opened.needs and not model.sampling.logprobs:
            yield Problem((*path, "sampling", "logprobs"), "must be true: the rubric needs completion_bpt")
        if "prompt_bpt" in opened.needs and model.prompt_logprobs is None:
            yield Problem((*path, "prompt_logprobs"), "must be given: the rubric needs prompt_bpt", "for vLLM: vllm")
        needed = sorted(opened.needs & {LENGTH, LENGTH_RATIO, "token_ratio"})
        if needed and model.concurrency.samples_per_request > 1 and not model.sampling.logprobs:
            rule = f"must be 1: the rubric needs {needed[0]}, and servers only count the tokens of a whole request"
            hint = "or set sampling.logprobs: true, by which each answer is counted"
            yield Problem((*path, "concurrency", "samples_per_request"), rule, hint)


def check_asked_grader_cost(budget: BudgetConfig, grader: GraderOptions) -> Iterator[Problem]:
    """Check that there are prices and limits from which caps can reserve the cost of grading."""
    needs = (
        ("usd", budget.usd, "price"),
        ("usd", budget.usd, "sampling.max_tokens"),
        ("tokens", budget.tokens, "sampling.max_tokens"),
        ("gpu_hours", budget.gpu_hours, "gpus"),
    )
    for benchmark, asked in graders_that_ask(grader).items():
        whose = f" of {benchmark}" if benchmark else ""
        for cap, key in ((cap, key) for cap, limit, key in needs if limit is not None):
            for number, seat in enumerate(asked.seats):
                is_free = key == "price" and not is_known_by(seat.host)
                if attrgetter(key)(seat) is None and not is_free:
                    rule = f"needs {key} of the {asked.kind}{whose}, to reserve the cost of a verdict"
                    key_path = (
                        f"grader.{key}"
                        if "." in key
                        else f"grader.server{f'.{number}' if len(asked.seats) > 1 else ''}.{key}"
                    )
                    yield Problem(("budget", cap), rule, f"add {key_path}, or remove budget.{cap}")


class _GradedPart(NamedTuple):
    """The questions and the grader of a benchmark, or of a run with one benchmark, and their paths."""

    questions: QuestionsConfig
    grader: GraderOptions
    questions_path: KeyPath
    grader_path: KeyPath


def _graded_parts(questions: QuestionsConfig, grader: GraderOptions) -> Iterator[_GradedPart]:
    for name, part_grader in graders_by_benchmark(grader).items():
        if not name:
            yield _GradedPart(questions, part_grader, ("questions",), ("grader",))
        elif name in questions.benchmarks:
            paths: list[KeyPath] = [(section, INNER[section], name) for section in ("questions", "grader")]
            yield _GradedPart(questions.benchmarks[name], part_grader, *paths)


def check_judge_inputs(grader: GraderOptions, rubric: RubricConfig, questions: QuestionsConfig) -> Iterator[Problem]:
    """Check that a judge has the answers to compare with, and few enough possible scores for categories."""
    for section, judge, questions_path, grader_path in _graded_parts(questions, grader):
        if not isinstance(judge, Judge):
            continue
        fields = (REFERENCE, *section.fields.metadata)
        if judge.compare_to is not None and judge.compare_to not in fields:
            hint = f"it is one of {', '.join(fields)}; name the field under questions.fields.metadata"
            rule = "must be a field of the questions that is kept"
            yield Problem((*grader_path, "compare_to"), rule, hint, judge.compare_to)
        if judge.compare_to == REFERENCE and section.fields.answer is None:
            path = (*questions_path, "fields", "answer")
            yield Problem(path, "must be set: the judge compares with it", SET_KEY_FIELD)
        if rubric == RubricConfig() and judge.needs_rubric:
            rule = f"have more than {MAX_SUMS} different sums, too many for one category each"
            hint = "use fewer levels, or declare a rubric with categories, as in `when: {score: {at_least: 0.8}}`"
            yield Problem((*grader_path, "scores"), rule, hint)


def check_answer_keys_given(questions: QuestionsConfig, grader: GraderOptions) -> Iterator[Problem]:
    """Check that there is an answer key if the grader compares with one."""
    for section, part_grader, path, _ in _graded_parts(questions, grader):
        keyed = isinstance(part_grader, Verifier) and part_grader.key_grader is not None
        if section.fields.answer is None and (part_grader.reads_key or keyed):
            rule = "must be set: this grader compares with an answer key"
            yield Problem((*path, "fields", "answer"), rule, SET_KEY_FIELD)


# -- several benchmarks and tasks of Inspect ---------------------------------------------------------------------------


def check_benchmark_names(benchmarks: Parts, questions: QuestionsConfig | None = None) -> Iterator[Problem]:
    """Check that names differ, and that `questions.benchmarks` is not written by hand."""
    names = [part.name for part in benchmarks]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield Problem(("benchmarks", number, "name"), "must differ from the other names", "rename it", repr(name))
    if questions is not None and questions.benchmarks and not benchmarks:
        hint = "write them as `benchmarks: [{name: ..., questions: ...}]`"
        yield Problem(("questions", "benchmarks"), "is set by `benchmarks`, but there is none", hint)


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
            hint = "set `objective: {kind: baseline, baseline: NAME, gate: true}`, or remove it"
            yield Problem(path, "needs objective.gate as well", hint)
        if objective.kind == THRESHOLD.name:
            only = "compares with a baseline; a gate on a value judges the total alone"
            yield Problem(path, only, "remove it, give each benchmark a run of its own, or use kind: baseline")
        if rule is not None and not rule.correctable:
            yield Problem(path, f"needs a rule with a valid p-value, which {rule.name} lacks", "use rule: optimal")
        if stopping.familywise != "none":
            yield Problem(path, "already shares the error with a model's other gates", "remove stopping.familywise")
        if trials.seeds == "coupled" and objective.kind in BY_TRIAL:
            yield Problem(path, "cannot be combined with coupled seeds", "remove trials.seeds, or the gate")


def check_groups(report: ReportConfig, questions: QuestionsConfig, trials: TrialsConfig) -> Iterator[Problem]:
    """Check that scores are only broken down by kept fields, and not with drawn questions."""
    fields_by_section = [
        section.fields.metadata for section in (questions.benchmarks.values() if questions.benchmarks else (questions,))
    ]
    for name in report.group_by:
        if not any(name in fields for fields in fields_by_section):
            hint = "name the field under questions.fields.metadata"
            yield Problem(("report", "group_by"), "must be fields of the questions that are kept", hint, name)
    if report.group_by and trials.draw is not None:
        rule = "cannot be combined with trials.draw, which asks only some of the questions"
        yield Problem(("report", "group_by"), rule, "remove it, or trials.draw")


def check_question_weights(benchmarks: Parts, trials: TrialsConfig, report: ReportConfig) -> Iterator[Problem]:
    """Refuse settings without a formula for questions of unequal weight."""
    rule = "cannot be combined with several benchmarks: it needs questions of equal weight"
    given = ((("trials", "draw"), trials.draw is not None), (("report", "metrics"), bool(report.metrics)))
    for path, is_given in given if benchmarks else ():
        if is_given:
            yield Problem(path, rule, "remove it, or run the benchmarks one by one")


TASK_HAS_PROMPTS = "has no effect: the Inspect task has its own prompts"
SET_UNDER_INSPECT = "put Inspect's settings under `inspect`, such as {temperature: 0.6, max_tokens: 2000}"


def check_inspect_benchmark(
    benchmark: BenchmarkConfig | None,
    benchmarks: Parts,
    models: Models,
    grader: GraderOptions | None = None,
    prompt: PromptConfig | None = None,
) -> Iterator[Problem]:
    """Check that Inspect asks every model and grades every answer."""
    tasks = {part.name: part.benchmark for part in benchmarks} or {"": benchmark}
    if not any(tasks.values()):
        return
    if prompt is not None and prompt.few_shot and None not in tasks.values():
        yield Problem(("prompt", "few_shot"), TASK_HAS_PROMPTS, "remove it")
    for name, benchmark_grader in graders_by_benchmark(grader).items() if grader is not None else ():
        if tasks.get(name) is not None and not isinstance(benchmark_grader, InspectScores):
            path: KeyPath = ("grader", "graders", name) if name else ("grader",)
            yield Problem(path, "has no effect: the task's own scorer grades", "remove it")
    for number, part in enumerate(benchmarks):
        if part.benchmark is not None and part.prompt != PromptConfig():
            yield Problem(("benchmarks", number, "prompt"), TASK_HAS_PROMPTS, "remove it")
    for number, model in asked_models(models):
        path = ("models", number)
        if model.inspect is None:
            rule, hint = "must be set: the benchmark is an Inspect task", "write its name in Inspect: openai/gpt-x"
            yield Problem((*path, "inspect"), rule, hint)
        else:
            yield from _check_asked_model(model, path, has_prompt=None in tasks.values())


def _check_asked_model(model: ModelConfig, path: KeyPath, *, has_prompt: bool) -> Iterator[Problem]:
    """Refuse settings of prompts and sampling, which Inspect does not use."""
    if model.sampling != Sampling(max_tokens=model.sampling.max_tokens):
        rule = "may only have max_tokens, the limit on all tokens of an Inspect sample"
        yield Problem((*path, "sampling"), rule, SET_UNDER_INSPECT)
    if model.prompt != TemplateConfig() and not has_prompt:
        yield Problem((*path, "prompt"), TASK_HAS_PROMPTS, "remove it")


def check_only_benchmark_asked(
    benchmark: BenchmarkConfig | None, benchmarks: Parts, models: Models, questions: QuestionsConfig | None = None
) -> Iterator[Problem]:
    """Check that keys for Inspect tasks are only used with such a task."""
    if benchmark is not None or any(part.benchmark for part in benchmarks):
        return
    hint = "add `benchmark: {inspect: package/task}`, or remove it"
    if questions is not None and questions.task is not None:
        yield Problem(("questions", "task"), "is set by `benchmark`, but there is none", hint)
    for number, model in valid_models(models):
        if model.inspect is not None:
            yield Problem(("models", number, "inspect"), "is for Inspect tasks, but there is no benchmark", hint)
