"""Checks between sections: the functions `check_...` of this and some other modules.

Each check's parameters are the sections it needs, and it runs if these are valid; those with a default may be missing.
`names` are the names of the models in the file, so that a mistake in one model does not hide another.
"""

from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, get_args
from urllib.parse import urlsplit

from adaptive_eval.base.sections import Section
from adaptive_eval.config import benchmark_checks, grading_checks, listed_models, trial_checks
from adaptive_eval.config.decisions import BudgetConfig, ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.listed_models import Models, asked_models, recorded_models, valid_models
from adaptive_eval.config.pace import is_own_server
from adaptive_eval.config.problems import KeyPath, Problem, did_you_mean, shown_value
from adaptive_eval.core.entries import Entry, Option, OptionType
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES
from adaptive_eval.graders.by_benchmark import graders_that_ask
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.prompts import QUESTION_FIELDS, PromptConfig, template_problems
from adaptive_eval.questions.types import QuestionsConfig

Names = tuple[str, ...]


def cross_check(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Run all checks whose required sections are given."""
    rooms = globals(), *map(vars, (listed_models, grading_checks, benchmark_checks, trial_checks))
    for check in [one for room in rooms for name, one in room.items() if name.startswith("check_")]:
        parameters = signature(check).parameters
        needed = {name for name, one in parameters.items() if one.default is Parameter.empty}
        if needed <= sections.keys():
            yield from check(**{name: sections[name] for name in parameters if name in sections})


def check_some_model_asked(objective: ObjectiveConfig, models: Models) -> Iterator[Problem]:
    recorded = list(recorded_models(models))
    if models and len(recorded) == len(models):
        mend = "add a new model; to see the results of earlier runs use `adaptive-eval report`"
        yield Problem(("models",), "must have a model that is asked, but all are recorded", mend)
    if objective.kind == "place" and None not in models and not recorded:
        rule = "place needs recorded models, to which the others are compared"
        yield Problem(("objective", "kind"), rule, "give models `recorded: RUN`, or use the objective ranking")


def check_enough_models(objective: ObjectiveConfig, names: Names) -> Iterator[Problem]:
    entry = OBJECTIVES.get(str(objective.kind))
    if entry is not None and len(names) < entry.least_models:
        yield Problem(
            ("models",), f"must be two or more for the objective {entry.name}", "add another", str(len(names))
        )
    for option, value in _given_options(objective, OBJECTIVES, objective.kind, "models"):
        if value >= len(names):
            rule = f"must be below the number of models, which is {len(names)}"
            yield Problem(("objective", option.name), rule, "for all of them, use the objective ranking", str(value))


def _given_options(
    section: Section, entries: Mapping[str, Entry[Any]], chosen: object, *types: str
) -> Iterator[tuple[Option, Any]]:
    """The given options of a built-in that have one of these types."""
    entry = entries.get(str(chosen))
    for option in () if entry is None else entry.options:
        value = getattr(section, option.name)
        if option.type in types and value is not None:
            yield option, value


def check_objective_models(objective: ObjectiveConfig, names: Names) -> Iterator[Problem]:
    named: list[tuple[KeyPath, str]] = []
    for option, value in _given_options(objective, OBJECTIVES, objective.kind, "model", "pairs"):
        path: KeyPath = ("objective", option.name)
        if option.type == "model":
            named.append((path, value))
        else:
            named += [((*path, at, side), name) for at, pair in enumerate(value) for side, name in enumerate(pair)]
    for path, name in named:
        if name not in names:
            mend = did_you_mean(name, names, f"the models are {', '.join(names)}")
            yield Problem(path, "must be the name of a model", mend, shown_value(name))


def check_rules_fit_objective(
    objective: ObjectiveConfig, stopping: StoppingConfig, trials: TrialsConfig
) -> Iterator[Problem]:
    asked = OBJECTIVES.get(str(objective.kind))
    if asked is None:
        return
    rule, policy = RULES.get(str(stopping.rule)), POLICIES.get(str(trials.policy))
    if rule is not None and rule.only_for and asked.name not in rule.only_for:
        said = f"{rule.name} is for the {_objectives(rule.only_for)}"
        yield Problem(("stopping", "rule"), said, rule.instead, asked.name)
    if stopping.familywise == "holm" and asked.own_rule is not None and not asked.own_rule.correctable:
        mend = "every score has an interval of its own: remove familywise"
        yield Problem(("stopping", "familywise"), "is for objectives that compare scores", mend, asked.name)
    if policy is not None and policy.only_for and asked.name not in policy.only_for:
        said = f"{policy.name} is for the {_objectives(policy.only_for)}"
        yield Problem(("trials", "policy"), said, f"use {next(iter(POLICIES))}", asked.name)


def _objectives(names: Sequence[str]) -> str:
    return f"objective{'s' if len(names) > 1 else ''} {' and '.join(names)}"


def check_plug_in_options(objective: ObjectiveConfig) -> Iterator[Problem]:
    for owner in OBJECTIVES.values() if str(objective.kind) not in OBJECTIVES else ():
        for option, _ in _given_options(objective, OBJECTIVES, owner.name, *get_args(OptionType)):
            rule = f"is an option of {owner.name}, not of a plug-in"
            mend = f"write objective: {{kind: {objective.kind!r}, options: {{{option.name}: ...}}}}"
            yield Problem(("objective", option.name), rule, mend)


def check_values_on_scale(
    objective: ObjectiveConfig, stopping: StoppingConfig, rubric: RubricConfig
) -> Iterator[Problem]:
    weights = open_rubric(rubric).weights
    low, high = min(weights), max(weights)
    widths: dict[KeyPath, float] = {("stopping", "delta"): stopping.delta}
    widths |= {
        ("objective", option.name): value
        for option, value in _given_options(objective, OBJECTIVES, objective.kind, "difference")
    }
    for path, width in widths.items():
        if width >= high - low:
            rule = f"must be a difference of scores, which run from {low:g} to {high:g}"
            yield Problem(path, rule, "for two points in a hundred write 0.02 or 2%", f"{width:g}")
    for option, value in _given_options(objective, OBJECTIVES, objective.kind, "score"):
        if not low <= value <= high:
            rule = f"must be a score, from {low:g} to {high:g}"
            yield Problem(("objective", option.name), rule, "for 60 in a hundred write 0.6 or 60%", f"{value:g}")


def check_template_fields(questions: QuestionsConfig, prompt: PromptConfig, models: Models) -> Iterator[Problem]:
    if questions.benchmarks:  # each has fields of its own
        return
    known = (*QUESTION_FIELDS, *questions.fields.metadata)
    templates: dict[KeyPath, str] = {("prompt", "template"): prompt.template}
    for number, model in valid_models(models):
        templates[("models", number, "prompt", "template")] = model.prompt.template
    for path, template in templates.items():
        for problem in template_problems(template, known):
            yield Problem(path, "has a name in braces that is not a field", problem)


def check_budget_countable(
    budget: BudgetConfig, models: Models, grader: GraderOptions | None = None
) -> Iterator[Problem]:
    """Check that caps can count every model; under a cap on USD, servers of one's own cost nothing."""
    asked = [model for _, model in asked_models(models)]
    asking = () if grader is None else graders_that_ask(grader).values()
    seats = [seat for one in asking for seat in one.seats]
    without = {
        "price": [model for model in asked if model.price is None and not is_own_server(model)],
        "gpus": [model for model in asked if model.gpus is None],
    }
    for cap, limit, key in (("usd", budget.usd, "price"), ("gpu_hours", budget.gpu_hours, "gpus")):
        if limit is not None and without[key]:
            named = ", ".join(model.name for model in without[key])
            have = "has" if len(without[key]) == 1 else "have"
            rule = f"needs {key} of every model, to reserve what a trial may cost, but {named} {have} none"
            some = "add it, 0 where no GPU is yours" if key == "gpus" else "add it, 0 on a server of your own"
            if key == "price" and any(model.inspect is not None for model in without[key]):
                some = "add it (where models are named by --model: --price NAME=IN/OUT)"
            yield Problem(("budget", cap), rule, f"{some}, or remove budget.{cap}")
    prices = [*(model.price for model in asked), *(seat.price for seat in seats)]
    if budget.usd is not None and not without["price"] and all(price is None for price in prices):
        rule = "counts nothing, since every model is on a server of your own and none has a price"
        yield Problem(("budget", "usd"), rule, "cap gpu_hours, wall_time, tokens or trials instead, or add a price")


def check_simulation(questions: QuestionsConfig, models: Models = ()) -> Iterator[Problem]:
    known: tuple[str, ...] | None = None
    if questions.world is not None:
        from adaptive_eval.simulate.worlds import WORLDS  # imported here: it is slow to load

        if questions.world in WORLDS:
            known = WORLDS[questions.world]().models
        else:
            mend = did_you_mean(questions.world, WORLDS, f"the worlds are {', '.join(WORLDS)}")
            rule = "must be a world of the simulator"
            yield Problem(("questions", "world"), rule, mend, shown_value(questions.world))
    for number, model in asked_models(models):
        path: KeyPath = ("models", number, "simulate")
        hosts = {urlsplit(url).hostname for url in model.replicas}
        if model.simulate and questions.world is None:
            yield Problem(path, "needs the questions of a world", "set `questions: {world: coins}`")
        elif model.simulate and known is not None and model.model not in known:
            rule, mend = f"needs a model of the world {questions.world}", f"its models are {', '.join(known)}"
            yield Problem(path, rule, mend, shown_value(model.model))
        elif questions.world is not None and not (model.simulate or hosts <= {"127.0.0.1", "localhost"}):
            mend = "set `simulate: true`, give the address of an `adaptive-eval simulate`, or real questions"
            yield Problem(path, "must be true: a world's questions mean nothing to a real model", mend)
