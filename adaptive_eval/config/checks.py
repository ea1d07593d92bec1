"""What must hold between sections. Each check names the sections it needs, and runs when those are valid by themselves.

`names` are the names of the models as the file gives them, so that a mistake in one model does not hide another.
"""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from inspect import signature
from operator import attrgetter
from typing import Any
from urllib.parse import urlsplit

from adaptive_eval.config.decisions import AllocationConfig, BudgetConfig, ObjectiveConfig, StoppingConfig
from adaptive_eval.config.problems import KeyPath, Problem, shown
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.graders.rubric import RubricConfig, SchemaRubric, open_rubric
from adaptive_eval.graders.types import ANSWER_SIGNALS, GraderOptions
from adaptive_eval.questions.prompts import QUESTION_FIELDS, PromptConfig, template_problems
from adaptive_eval.questions.types import QuestionsConfig

Names = tuple[str, ...]
Models = tuple[ModelConfig | None, ...]
"""The models of the file in their order, None for those with mistakes of their own."""


def cross_check(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Every rule between sections that is broken, among the sections that are given."""
    for check in CHECKS:
        needed = signature(check).parameters
        if needed.keys() <= sections.keys():
            yield from check(**{name: sections[name] for name in needed})


def _valid(models: Models) -> Iterator[tuple[int, ModelConfig]]:
    return ((number, model) for number, model in enumerate(models) if model is not None)


def _enough_models(objective: ObjectiveConfig, names: Names) -> Iterator[Problem]:
    if objective.kind not in ("precision", "threshold") and len(names) < 2:
        yield Problem(
            ("models",), f"must be two or more for the objective {objective.kind}", "add another", str(len(names))
        )
    if objective.k is not None and objective.k >= len(names):
        rule = f"must be below the number of models, which is {len(names)}"
        yield Problem(("objective", "k"), rule, "for all of them, use the objective ranking", str(objective.k))


def _objective_names_models(objective: ObjectiveConfig, names: Names) -> Iterator[Problem]:
    named: list[tuple[KeyPath, str]] = []
    if objective.baseline is not None:
        named.append((("objective", "baseline"), objective.baseline))
    for number, pair in enumerate(objective.pairs or ()):
        named += [(("objective", "pairs", number, side), name) for side, name in enumerate(pair)]
    for path, name in named:
        if name not in names:
            close = get_close_matches(name, names, 1)
            mend = f"did you mean {close[0]!r}?" if close else f"the models are {', '.join(names)}"
            yield Problem(path, "must be the name of a model", mend, shown(name))


def _rules_fit_objective(
    objective: ObjectiveConfig, stopping: StoppingConfig, allocation: AllocationConfig
) -> Iterator[Problem]:
    if stopping.rule == "expected_loss" and objective.kind != "best":
        mend = "its promise is about the model that is chosen: use sequential"
        yield Problem(("stopping", "rule"), "expected_loss is for the objective best", mend, objective.kind)
    if stopping.familywise == "holm" and objective.kind == "precision":
        mend = "every score has an interval of its own: remove familywise"
        yield Problem(("stopping", "familywise"), "is for objectives that call an order", mend, "precision")
    if allocation.policy == "leader" and objective.kind not in ("best", "top_k"):
        yield Problem(
            ("allocation", "policy"), "leader is for the objectives best and top_k", "use weighted", objective.kind
        )


def _values_lie_on_the_scale(
    objective: ObjectiveConfig, stopping: StoppingConfig, rubric: RubricConfig
) -> Iterator[Problem]:
    weights = open_rubric(rubric).weights
    low, high = min(weights), max(weights)
    widths = {("stopping", "delta"): stopping.delta, ("objective", "half_width"): objective.half_width}
    for path, width in widths.items():
        if width is not None and width >= high - low:
            rule = f"must be a difference of scores, which run from {low:g} to {high:g}"
            yield Problem(path, rule, "for two points in a hundred write 0.02 or 2%", f"{width:g}")
    if objective.value is not None and not low <= objective.value <= high:
        rule = f"must be a score, from {low:g} to {high:g}"
        yield Problem(("objective", "value"), rule, "for 60 in a hundred write 0.6 or 60%", f"{objective.value:g}")


def _templates_name_fields(questions: QuestionsConfig, prompt: PromptConfig, models: Models) -> Iterator[Problem]:
    known = (*QUESTION_FIELDS, *questions.fields.metadata)
    templates: dict[KeyPath, str] = {("prompt", "template"): prompt.template}
    for number, model in _valid(models):
        templates[("models", number, "prompt", "template")] = model.prompt.template
    for path, template in templates.items():
        for problem in template_problems(template, known):
            yield Problem(path, "has a name in braces that is no field", problem)


def _rubric_has_its_signals(grader: GraderOptions, rubric: RubricConfig, models: Models) -> Iterator[Problem]:
    opened = open_rubric(rubric)
    known = grader.gives | ANSWER_SIGNALS
    if grader.gives:
        for name in sorted(opened.needs - known):
            close = get_close_matches(name, known, 1)
            mend = f"did you mean {close[0]}?" if close else f"this grader's are {', '.join(sorted(grader.gives))}"
            yield Problem(("rubric",), f"needs the signal {name}, which no answer will have", mend)
    if isinstance(opened, SchemaRubric):
        for name in opened.schema.thresholds:
            if name not in rubric.thresholds:
                mend = f"fit it on a pilot with scorio.categorical.fit_thresholds, and add `{name}:`"
                yield Problem(("rubric", "thresholds"), f"must have {name}, which {rubric.name} compares with", mend)
    for number, model in _valid(models):
        path: KeyPath = ("models", number)
        if "completion_bpt" in opened.needs and not model.sampling.logprobs:
            yield Problem((*path, "sampling", "logprobs"), "must be true: the rubric needs completion_bpt")
        if "prompt_bpt" in opened.needs and model.prompt_logprobs is None:
            yield Problem((*path, "prompt_logprobs"), "must be given: the rubric needs prompt_bpt", "for vLLM: vllm")


def _budget_can_be_counted(budget: BudgetConfig, models: Models) -> Iterator[Problem]:
    needs = (
        ("usd", budget.usd, "price"),
        ("usd", budget.usd, "sampling.max_tokens"),
        ("tokens", budget.tokens, "sampling.max_tokens"),
        ("gpu_hours", budget.gpu_hours, "gpus"),
    )
    for cap, limit, key in needs:
        without = [model.name for _, model in _valid(models) if attrgetter(key)(model) is None]
        if limit is not None and without:
            rule = f"needs {key} of every model, to reserve what a trial may cost, but {', '.join(without)} has none"
            yield Problem(("budget", cap), rule, f"add it, or remove budget.{cap}")


def _simulation_is_whole(questions: QuestionsConfig, models: Models) -> Iterator[Problem]:
    world = _world_models(questions)
    for number, model in _valid(models):
        path: KeyPath = ("models", number, "simulate")
        if model.simulate and questions.world is None:
            yield Problem(path, "needs the questions of a world", "set `questions: {world: coins}`")
        elif model.simulate and world is not None and model.model not in world:
            mend = f"its models are {', '.join(world)}"
            yield Problem(path, f"needs a model of the world {questions.world}", mend, shown(model.model))
        elif questions.world is not None and not (model.simulate or _on_this_machine(model)):
            mend = "set `simulate: true`, give the address of an `adaptive-eval simulate`, or real questions"
            yield Problem(path, "must be true: a world's questions mean nothing to a real model", mend)


def _one_server_a_model(models: Models) -> Iterator[Problem]:
    for number, model in _valid(models):
        if model.launch is not None and model.simulate:
            rule, mend = "is not for a model that the simulator serves", "remove it, or simulate"
            yield Problem(("models", number, "launch"), rule, mend)


def _on_this_machine(model: ModelConfig) -> bool:
    """All replicas are: `adaptive-eval simulate` serves on the loopback address alone."""
    return all(urlsplit(url).hostname in ("127.0.0.1", "localhost") for url in model.replicas)


def _world_is_known(questions: QuestionsConfig) -> Iterator[Problem]:
    from adaptive_eval.simulate.worlds import WORLDS

    if questions.world is not None and questions.world not in WORLDS:
        close = get_close_matches(questions.world, WORLDS, 1)
        mend = f"did you mean {close[0]!r}?" if close else f"the worlds are {', '.join(WORLDS)}"
        yield Problem(("questions", "world"), "must be a world of the simulator", mend, shown(questions.world))


def _world_models(questions: QuestionsConfig) -> tuple[str, ...] | None:
    if questions.world is None:
        return None
    from adaptive_eval.simulate.worlds import WORLDS

    return WORLDS[questions.world]().models if questions.world in WORLDS else None


def _base_seed_is_used(seeds: str, models: Models) -> Iterator[Problem]:
    for number, model in _valid(models):
        if model.sampling.seed is not None and seeds != "consecutive":
            rule = "is where consecutive seeds begin, but the run's seeds are hashed"
            yield Problem(
                ("models", number, "sampling", "seed"), rule, "add `seeds: consecutive`, or set the run's `seed`"
            )


def _answers_are_there(questions: QuestionsConfig, grader: GraderOptions) -> Iterator[Problem]:
    if questions.fields.answer is None and getattr(grader, "kind", None) != "python":
        yield Problem(("questions", "fields", "answer"), "must be given: this grader compares with an answer key")


CHECKS: tuple[Callable[..., Iterator[Problem]], ...] = (
    _enough_models,
    _objective_names_models,
    _rules_fit_objective,
    _values_lie_on_the_scale,
    _templates_name_fields,
    _rubric_has_its_signals,
    _budget_can_be_counted,
    _simulation_is_whole,
    _one_server_a_model,
    _world_is_known,
    _base_seed_is_used,
    _answers_are_there,
)
