"""What a run decides and promises, in sentences: for reports, the monitor, and whoever was not there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from adaptive_eval.config.decisions import ObjectiveConfig
from adaptive_eval.config.run import RunConfig
from adaptive_eval.imports import SAID


@dataclass(frozen=True, slots=True)
class Words:
    """One or two sentences each."""

    objective: str
    """Which comparisons matter."""
    rule: str
    """What calls a comparison."""
    promise: str
    """How often that is wrong."""
    allocation: str
    """Which trials came next."""
    prior: str
    """Where the variances come from."""
    seeds: str
    """How the seed of each trial is found."""


def words_of(config: RunConfig, plug_ins: Mapping[str, str], *, imported: bool) -> Words:
    """The sentences for a configuration; `plug_ins`: what plug-ins say of themselves; `imported`: the first trials came
    from logs."""
    return Words(
        objective=_objective(config.objective),
        rule=_rule(config),
        promise=_promise(config, plug_ins.get("stopping.rule", "")),
        allocation=_allocation(config),
        prior=_prior(config),
        seeds=_imported_seeds(config) if imported else _seeds(config),
    )


def _objective(objective: ObjectiveConfig) -> str:
    match objective.kind:
        case "best":
            return "The leader is compared with every other model."
        case "top_k":
            return f"Each of the first {objective.k} models is compared with each of the others."
        case "baseline":
            return f"Every model is compared with {objective.baseline}."
        case "pairs":
            return f"The {len(objective.pairs or ())} pairs that the configuration names are compared."
        case "precision":
            return f"Every score is wanted with a 95% interval of at most ±{_percent(objective.half_width)}."
        case "threshold":
            return f"Every score is held against {objective.value:g}."
        case _:
            return "Every model is compared with its neighbour in the order."


def _rule(config: RunConfig) -> str:
    stopping, trials = config.stopping, config.trials
    if config.objective.kind == "precision":
        return "A score is done when its interval is narrow enough."
    match stopping.rule:
        case "sequential":
            said = (
                "A comparison is called when |z| reaches c t^(-1/4), where t is the share of the information at the "
                f"horizon of {trials.max} trials a question, and c is such that the promise holds at whatever looks "
                "are taken from the first one on."
            )
        case "anytime":
            said = "A comparison is called when |z| reaches a normal-mixture boundary, which needs no horizon."
        case "zscore":
            threshold = "the normal quantile of the confidence" if stopping.threshold is None else stopping.threshold
            said = f"A comparison is called when |z| exceeds {threshold} at a look, as published."
        case "intervals":
            said = "A comparison is called when the two credible intervals do not overlap at a look, as published."
        case "expected_loss":
            epsilon = 0.0025 if stopping.epsilon is None else stopping.epsilon
            said = f"A comparison is called when choosing the model ahead loses less than {epsilon:g} on average."
        case _:
            said = f"A comparison is called by the plug-in {stopping.rule}."
    return said + _delta(config) + _futility(config)


def _delta(config: RunConfig) -> str:
    delta = config.stopping.delta
    return f" Two scores are certified as tied when they lie within {_percent(delta)} of each other." if delta else ""


def _futility(config: RunConfig) -> str:
    if config.stopping.futility is False:
        return ""
    return " It is given up as out of reach when the trials that are left would hardly decide it."


def _promise(config: RunConfig, says: str) -> str:
    stopping = config.stopping
    wrong = 1.0 - stopping.confidence
    if config.objective.kind == "precision":
        return "Each 95% interval contains the score on these questions in 95% of runs."
    match stopping.rule:
        case "sequential" | "anytime":
            whose = "for all comparisons together" if stopping.familywise == "holm" else "for each comparison"
            return (
                f"A wrong order is called with probability at most {_percent(wrong)}, and a winner between exact ties "
                f"with at most {_percent(2 * wrong)}, {whose}, however often the data were looked at."
            )
        case "zscore" | "intervals":
            return (
                "None that survives repeated looks: checked at every look up to 80 trials of 30 questions, z > 1.645 "
                "names a winner between exact ties in 25 to 49% of runs."
            )
        case "expected_loss":
            return "The model chosen is on average no more than this loss behind the best."
        case _:
            whose = ", shared among all comparisons" if stopping.familywise == "holm" else ""
            return f"That of the plug-in {stopping.rule}, not one of adaptive-eval's own{whose}.{_quoted(says)}"


def _allocation(config: RunConfig) -> str:
    trials = config.trials
    said = {
        "weighted": "Further trials go to models in an open comparison, more to questions that tell them apart",
        "unresolved_pairs": "Further trials go to models in an open comparison, on all questions alike",
        "uniform": "Every model gets the same number of trials",
        "leader": "Further trials go to the leader and its rivals",
    }.get(config.allocation.policy, f"Trials are given out by the plug-in {config.allocation.policy}")
    return f"{said}: {trials.min} trials a question before the first look, {trials.max} on average at most."


def _prior(config: RunConfig) -> str:
    scale = "The score is the average over questions of each question's average; Bayes@N (uniform prior) beside it."
    if config.stopping.prior == "uniform":
        return f"{scale} Variances are those of the uniform prior: one count in each category."
    return f"{scale} Variances come from a prior centred on each model's own shares of the categories."


def _quoted(says: str) -> str:
    """What a plug-in says of itself, as words that mean nothing to a browser, a terminal or Markdown."""
    plain = " ".join(re.sub(r"[^\w\s,.;()'%=+-]", "", says[:SAID]).split()).strip("_ ")
    return f" It says of itself: '{plain}'." if plain else ""


def _seeds(config: RunConfig) -> str:
    if config.seeds == "consecutive":
        return "Trial i of every question has seed sampling.seed + i (or seed + i)."
    return f"Trial i has seed h(run seed {config.seed}, model, question) + i, whatever else is asked."


def _imported_seeds(config: RunConfig) -> str:
    told = "Imported trials have the seeds of where they were sampled, which are not known here."
    return f"{told} Of others: {_seeds(config)}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.10g}%"
