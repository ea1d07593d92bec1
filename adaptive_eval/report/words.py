"""Decisions and promises of a run in sentences, for reports and the monitor."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from unicodedata import category

from adaptive_eval.base.imports import MAX_DESCRIPTION
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.config.pace import choose_optimize, opening_trials
from adaptive_eval.config.prepare import OWN_RULE, PreparedRun
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.entries import Entry, Option
from adaptive_eval.core.near_best import MARGIN, NEAR_BEST
from adaptive_eval.core.optimal import AT_ANY_LOOKS, OPTIMAL
from adaptive_eval.core.policies import UNRESOLVED_PAIRS, WEIGHTED
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES
from adaptive_eval.core.rules import RuleEntry
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.report.gate import PASS, gate_terms, outcome_in_words
from adaptive_eval.report.lines import Scale, capitalised, several
from adaptive_eval.report.results import REDECIDED, Results, setting


@dataclass(frozen=True, slots=True)
class DecisionsInWords:
    """Decisions of a run, each in one or two sentences."""

    objective: str
    """Comparisons that matter."""
    rule: str
    """Rule that calls a comparison."""
    promise: str
    """Error rate of calls."""
    allocation: str
    """Choice of the next trials."""
    prior: str
    """Source of the variances."""
    seeds: str
    """Seed of each trial."""


@dataclass(frozen=True, slots=True)
class ObjectiveView:
    """Terms of an objective, from its registry entry; unknown for a plug-in."""

    compares: bool
    """Whether it compares models; else each score is judged on its own."""
    in_order: bool
    """Whether each model is compared with the next one in the order."""
    baseline: str | None
    """The model that all others are compared with."""
    first: int | None
    """Number of models to be separated from the rest."""
    value: float | None
    """Value that each score is compared with."""
    half_width: float | None
    """Wanted half width of each score's interval."""
    margin: float | None = None
    """How far behind the best the cheapest model that will do may be."""


def objective_view(decisions: Mapping[str, object]) -> ObjectiveView:
    """Terms of the objective in these decisions, which the types of its options tell apart."""
    section = cast(Mapping[str, Any], decisions.get("objective", {}))
    entry = OBJECTIVES.get(str(section.get("kind")))
    given = {} if entry is None else {option.type: section.get(option.name) for option in entry.options}
    return ObjectiveView(
        compares=entry is None or entry.compares,
        in_order=entry is not None and entry.in_order,
        baseline=given.get("model"),
        first=given.get("models"),
        value=given.get("score"),
        half_width=given.get("difference"),
        margin=(given["margin"] or MARGIN) if "margin" in given else None,
    )


def decisions_in_words(
    config: RunConfig, plug_ins: Mapping[str, str], *, began_at: int, imported: bool
) -> DecisionsInWords:
    """Describe a configuration. `plug_ins` maps a setting to the plug-in's own description; `began_at` is the horizon
    that the run began with; `imported` says that its first trials came from logs."""
    return DecisionsInWords(
        objective=_objective(config, plug_ins.get("objective.kind", "")),
        rule=_rule(config, brings_its_own=OWN_RULE in plug_ins),
        promise=_promise(config, plug_ins),
        allocation=_allocation(config, began_at),
        prior=_prior(config),
        seeds=IMPORTED_SEEDS * imported + _seeds(config),
    )


def deciding_rule(decisions: Mapping[str, object]) -> RuleEntry | None:
    """The registry entry of the rule that decides; None for a plug-in."""
    objective = OBJECTIVES.get(str(setting(decisions, "objective", "kind") or "ranking"))
    if objective is not None and objective.own_rule is not None:
        return objective.own_rule
    return RULES.get(str(setting(decisions, "stopping", "rule") or OPTIMAL.name))


def compares_bayes(decisions: Mapping[str, object]) -> bool:
    """Whether Bayes@N is compared and ranked instead of the score."""
    rule = deciding_rule(decisions)
    return rule is not None and rule.estimator == "bayes"


def draws_questions(decisions: Mapping[str, object]) -> bool:
    """Whether questions were drawn at random, and each model was asked some of them."""
    return setting(decisions, "trials", "draw") is not None


def promise_of(config: RunConfig) -> str | None:
    """Error rate promised for each decision of a run with this configuration."""
    return promise_in_words(config.stated(), _scale(config))


def promise_in_words(decisions: Mapping[str, object], scale: Scale) -> str | None:
    """Error rate promised for each decision; None if these decisions are not complete."""
    rule, stopping = deciding_rule(decisions), decisions.get("stopping")
    if not isinstance(stopping, Mapping):
        return None
    beside = "" if (judge := judged_by(decisions)) is None else f"; errors of the {judge} come on top"
    if rule is None:
        return f"that of the plug-in; adaptive-eval adds none{beside}"
    if str(setting(decisions, "objective", "kind") or "ranking") not in OBJECTIVES:
        beside = f", unless the plug-in objective has its own rule{beside}"
    margin, gate = objective_view(decisions).margin, setting(decisions, "objective", "gate")
    promise = rule.in_short or rule.promise
    familywise = stopping["familywise"] == "holm"
    if rule.correctable and margin is not None:
        promise = CHEAPEST_PROMISE
    elif rule.correctable and familywise and setting(decisions, "objective", "kind") in NEAR_BEST.only_for:
        promise = PICK_PROMISE
    elif rule.correctable and gate:
        promise = GATE_PROMISE
    what, wrong = "model" if gate else "comparison", 1.0 - stopping["confidence"]
    text = promise.format(
        whose=f"for all {what}s together" if familywise else f"for each {what}",
        wrong=_percent(wrong),
        tie=_percent(2.0 * wrong),
        delta=scale.points(stopping.get("delta") or 0.0),
        margin=scale.points(margin or 0.0),
    )
    return text.rstrip(".") + beside


CHEAPEST_PROMISE = "at most {wrong} risk that the model chosen is more than {margin} behind the best"
PICK_PROMISE = (
    "at most {wrong} risk that a picked model is worse than one left out, however often you look; it covers the pick, "
    "not all comparisons together"
)
"""That of an objective that picks, with one error for all: only mistakes about the best models share it
(`objectives`)."""
GATE_PROMISE = "{whose}: at most {wrong} risk that a PASS or a FAIL is wrong, however often you look"


def promise_line(results: Results) -> str | None:
    """The promise in one line, with what it does not cover."""
    scored, corrected = {row.name for row in results.models if row.score is not None}, results.corrected
    decisions = {**results.decisions, "judged_by": None} if corrected >= scored else results.decisions
    promise = promise_in_words(decisions, Scale.of(results.weights))
    if promise and corrected:
        scope = "" if corrected >= scored else f" of {several(len(corrected), 'model')}"
        promise += f"; for scores{scope} as corrected by labels"
    redecided = any(warning.kind == REDECIDED for warning in results.warnings)
    return f"{promise}; it does not cover settings changed after a look" if promise and redecided else promise


def judged_by(decisions: Mapping[str, object]) -> str | None:
    """The kind of grader that makes errors, judge or verifier; None if answers are compared with a key."""
    kind = decisions.get("judged_by")
    return kind if kind in ("judge", "verifier") and isinstance(kind, str) else None


def grader_errors_note(judge: str) -> str:
    """State that the promise leaves out a judge's errors, and how to correct for them."""
    return (
        f"The promise assumes that every grade is right. Errors of the {judge} come on top: if it errs more often "
        "about one model than another, the order can be wrong, however many answers there are. Label some answers of "
        "each model (adaptive-eval label RUN): the report then shows the error, and corrects scores and verdicts."
    )


def _benchmark_gates(config: RunConfig) -> dict[str, float]:
    """Delta of each benchmark that has its own gate."""
    return {benchmark.name: benchmark.gate for benchmark in config.benchmarks if benchmark.gate is not None}


def _objective(config: RunConfig, description: str) -> str:
    objective = config.objective
    if (terms := gate_terms(config.stated(), open_rubric(config.rubric).weights)) is not None:
        fails = "" if terms.delta else f" {terms.sides[1].split()[0]}"
        text = f"A gate: PASS where a model is {outcome_in_words(PASS, terms)}, FAIL where it is{fails}."
        parts = [f"{name} ({terms.scale.points(delta)})" for name, delta in _benchmark_gates(config).items()]
        return text + f" The same on {' and on '.join(parts)}: a model passes all of it, or fails." if parts else text
    entry = OBJECTIVES.get(str(objective.kind))
    if entry is None:
        return f"The plug-in {objective.kind} chooses what is compared.{_plug_in_quote(description)}"
    return entry.description.format(**_option_texts(entry, objective.arguments, _scale(config)))


def _rule(config: RunConfig, *, brings_its_own: bool) -> str:
    rule = deciding_rule(config.stated())
    gives_up = rule is not None and _gives_up(config, rule)
    if brings_its_own:
        text = f"The plug-in {config.objective.kind} has its own rule."
    elif rule is None:
        text = f"The plug-in {config.stopping.rule} decides comparisons."
    else:
        text = AT_ANY_LOOKS if rule.gives_up and not gives_up else rule.description
        within = _scale(config).points(config.stopping.delta)
        text = text.format(
            **_option_texts(rule, config.stopping.options, _scale(config)), horizon=_horizon(config), delta=within
        )
        if rule.gives_up and config.by_trial:
            text += " For models compared trial by trial the power of t is -1/20, with another c."
    entry = OBJECTIVES.get(str(config.objective.kind))
    if entry is not None and entry.own_rule is not None:  # it knows neither ties nor the trials needed for a call
        return text
    if (rule is None or rule.latching) and not gives_up:
        text += " It is out of reach when the remaining trials are unlikely to decide it."
    if config.stopping.delta and not config.objective.gate and not (rule is not None and rule.lenient):
        within = _scale(config).points(config.stopping.delta)
        text += f" Two models are tied when their scores are shown to be within {within}."
    return text


def _horizon(config: RunConfig) -> str:
    trials = config.trials
    return f"{trials.max} trials per question" if trials.draw is None else "one trial of every question"


def _gives_up(config: RunConfig, rule: RuleEntry) -> bool:
    """Whether the rule itself gives comparisons up in this run, as in `Plan.deciding_rule`."""
    shared = config.by_trial or config.stopping.familywise != "none" or _benchmark_gates(config)
    return rule.gives_up and not (shared or config.recorded or config.batched)


def _option_texts(entry: Entry[Any], given: Mapping[str, Any], scale: Scale) -> dict[str, str]:
    return {option.name: _option_text(option, given.get(option.name), scale) for option in entry.options}


def _option_text(option: Option, value: Any, scale: Scale) -> str:
    if option.type == "margin":
        return scale.points(MARGIN if value is None else value)
    if value is None:
        return option.default or ""
    match option.type:
        case "pairs":
            return str(len(value))
        case "difference" if option.default is None:
            return _percent(value)
        case "score":
            return scale.score(value)
        case "number" | "factor" | "difference":
            return plain_number(value)
        case _:
            return str(value)


def _scale(config: RunConfig) -> Scale:
    return Scale.of(open_rubric(config.rubric).weights)


def _promise(config: RunConfig, plug_ins: Mapping[str, str]) -> str:
    if OWN_RULE in plug_ins:
        return f"That of the plug-in {config.objective.kind}.{_plug_in_quote(plug_ins[OWN_RULE])}"
    quote = _plug_in_quote(plug_ins.get("stopping.rule", ""))
    return f"{capitalised(promise_of(config) or '')}.{quote}"


def _allocation(config: RunConfig, began_at: int) -> str:
    trials, policy = config.trials, config.trials.policy
    entry = POLICIES.get(str(policy))
    if entry is WEIGHTED and trials.draw is not None:
        entry = UNRESOLVED_PAIRS  # a question has one trial
    if entry is None:
        text = f"Trials are allocated by the plug-in {policy}"
    else:
        text = entry.description.format(**_option_texts(entry, trials.options, _scale(config)))
    if trials.draw is not None:
        return f"{text}: one trial of each in random order, with a look after every {trials.draw}."
    first = opening_trials(trials.model_copy(update={"max": began_at}), batched=config.batched)
    fewer = f" ({trials.min} if the budget does not pay for twice as many)" if first > trials.min else ""
    return (
        f"{text}: {first} trials per question before the first look{fewer}, at most {trials.max} on average. "
        f"Optimizing {optimizing_in_words(config)}."
    )


def run_in_words(prepared: PreparedRun) -> str:
    """Models, questions, objective and trials of a planned run, in one line."""
    config, plan = prepared.config, prepared.plan
    recorded, trials = len(config.recorded), config.trials
    beside = f" and {recorded} recorded" if recorded else ""
    larger = "" if prepared.usual is None else f" ({prepared.usual.opening_size} with a larger budget)"
    asked = f"up to {trials.max} trials per question, first look after {plan.opening_size}{larger}"
    return (
        f"{several(len(config.asked), 'model')}{beside}, {several(plan.bench.questions, 'question')}, objective "
        f"{config.objective.kind}, {f'one trial of each in blocks of {trials.draw}' if trials.draw else asked}"
    )


def optimizing_in_words(config: RunConfig) -> str:
    """What the run optimizes, as words after "optimizing", with the reason if `auto` would choose it too."""
    if config.batched:
        return "for batches: each round is as large as needed, since it waits for its batches"
    chosen, reason = choose_optimize(config.asked, config.trials)
    ahead = " (requests are sent ahead of looks to keep servers busy)" if config.trials.optimize == "time" else ""
    why = f": {reason}. trials.optimize changes it" if chosen == config.trials.optimize else ""
    return f"{config.trials.optimize}{ahead}{why}"


def _prior(config: RunConfig) -> str:
    weighted = ", weighted by benchmark" if config.benchmarks else ""
    scale = f"The score is the mean over questions of each question's mean{weighted}. Bayes@N has a uniform prior."
    if config.trials.draw is not None:
        return (
            "Questions were drawn at random, and scores estimate those on all questions. Two models are compared on "
            "the questions that both were asked, with the variance between questions. The score of a model that was "
            "asked fewer questions is adjusted by the scores of the other models on the missing ones."
        )
    if compares_bayes(config.stated()):
        return f"{scale} Models are compared and ranked by Bayes@N: one imagined answer in each category."
    return scale


HARMLESS = re.compile(r"[\w\s,.;()'%=+/-]")
FULL_WIDTH = 0xFEE0
"""Offset from an ASCII character to its full-width form, which looks alike and is no markup."""


def _plug_in_quote(description: str) -> str:
    """Quote a plug-in's own description, made harmless for browsers, terminals and Markdown."""
    plain = " ".join("".join(map(_harmless_character, description[:MAX_DESCRIPTION])).split()).strip("_ ")
    return f" Its own description: '{plain}'." if plain else ""


def _harmless_character(sign: str) -> str:
    """The character, its full-width form (a formula needs its `<`), or nothing."""
    if HARMLESS.match(sign) or category(sign) == "Sm" and not sign.isascii():
        return sign
    return chr(ord(sign) + FULL_WIDTH) if sign.isascii() and sign.isprintable() else ""


IMPORTED_SEEDS = "Imported trials keep their seeds, which are unknown here. For others: "


def _seeds(config: RunConfig) -> str:
    if config.trials.seeds == "consecutive":
        return f"Trial i of every question has seed {config.seed} + i."
    if config.trials.seeds == "coupled":
        shared = (
            "Models whose answers to the same trials are correlated are compared trial by trial from the first look "
            "on; all others as independent models."
            if config.by_trial
            else "A later run with this seed can compare its models with this one trial by trial."
        )
        seed = f"h(run seed {config.seed}, question) + i"
        return f"Trial i of a question has seed {seed}, the same for every model. {shared}"
    return f"Trial i has seed h(run seed {config.seed}, model, question) + i."


def _percent(share: float | None) -> str:
    return "" if share is None else f"{plain_number(100 * share, 10)}%"
