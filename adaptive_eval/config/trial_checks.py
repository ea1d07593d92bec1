"""Checks of drawn questions (`trials.draw`) and of coupled seeds (`trials.seeds: coupled`), and what else is said of
them."""

from collections.abc import Iterator

from adaptive_eval.config.decisions import ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.listed_models import Models, recorded_models
from adaptive_eval.config.problems import Problem
from adaptive_eval.config.reports import ReportConfig
from adaptive_eval.config.run import ModelConfig, PriorConfig, RunConfig
from adaptive_eval.core.registry import OBJECTIVES, RULES
from adaptive_eval.core.settings import LEAST_DRAWN
from adaptive_eval.questions.types import QuestionsConfig

WORTH_DRAWING = 2000
"""Number of questions from which drawing is suggested. After one trial of each of 2,000 questions, two models that
differ on a third of them are told apart half of the time if their scores differ by 2.11 sqrt(1/3) / sqrt(2000), or 2.7
points."""


def may_draw(config: RunConfig) -> bool:
    """Whether trials.draw could be set without a conflict."""
    trials = config.trials.model_copy(update={"draw": LEAST_DRAWN, "favour": "answers"})
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
    if trials.favour not in ("auto", "answers"):
        rule = "must be answers with trials.draw, which asks all models block by block"
        yield Problem(("trials", "favour"), rule, "remove it", trials.favour)
    entry = OBJECTIVES.get(str(objective.kind))
    if entry is not None and (entry.own_rule is not None or entry.name in ("threshold", "place")):
        rule = "must compare models that are all asked, since trials.draw compares their answers question by question"
        yield Problem(("objective", "kind"), rule, change, entry.name)
    chosen = RULES.get(str(stopping.rule))
    if chosen is not None and chosen.estimator != "average":
        yield Problem(
            ("stopping", "rule"), "compares Bayes@N, which needs trials of all questions", change, chosen.name
        )
    if stopping.prior == "uniform":
        rule = "needs several trials of a question, and trials.draw asks each once"
        yield Problem(("stopping", "prior"), rule, remove, stopping.prior)
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


COUPLED_OBJECTIVES = ("baseline", "pairs")
"""Objectives with fixed comparisons: in a ranking models stop at different times, and share few trials."""
DRAWN_BY = ("temperature", "top_p", "top_k", "min_p", "reasoning_effort")
"""Settings of `sampling` that change which token a random number selects."""
WITHOUT_SEEDS = "anthropic"
"""A batch service without seeds."""


def check_coupled(
    trials: TrialsConfig,
    objective: ObjectiveConfig,
    stopping: StoppingConfig,
    models: Models = (),
    prior: PriorConfig | None = None,
) -> Iterator[Problem]:
    """Check that comparisons are fixed, both models have trials with seeds, and variances suit differences."""
    if trials.seeds != "coupled":
        return
    mend = "remove it, or `trials.seeds`"
    if str(objective.kind) not in COUPLED_OBJECTIVES:
        rule = f"coupled is for the objectives {' and '.join(COUPLED_OBJECTIVES)}"
        yield Problem(("trials", "seeds"), rule, "remove it, or change objective.kind", str(objective.kind))
    if stopping.prior != "self":
        rule = "must be self with `trials.seeds: coupled`, whose variances are centred at the differences of two models"
        yield Problem(("stopping", "prior"), rule, mend, stopping.prior)
    rule = (
        "cannot be combined with `trials.seeds: coupled`, which compares trial by trial: an earlier run only gives "
        "counts"
    )
    if prior is not None:
        yield Problem(("prior",), rule, mend)
    for number, _ in recorded_models(models):
        yield Problem(("models", number, "recorded"), rule, mend)


def why_uncoupled(config: RunConfig) -> Iterator[str]:
    """A sentence for each comparison whose models are unlikely to be coupled."""
    if config.trials.seeds != "coupled":
        return
    models = {model.name: model for model in config.models}
    baseline, pairs = (config.objective.arguments.get(key) for key in ("baseline", "pairs"))
    for one, other in pairs or [(name, baseline) for name in models if name != baseline]:
        if why := _obstacle(models[one], models[other]):
            yield (
                f"{one} and {other} share their seeds, but {why}: their answers will hardly be correlated, and they "
                "are then compared as independent models"
            )


def _obstacle(one: ModelConfig, other: ModelConfig) -> str:
    """Why two models are unlikely to be coupled; empty if no reason is known."""
    for model in (one, other):
        if model.batch is not None and model.batch.kind == WITHOUT_SEEDS:
            return f"the batch service of {model.name} takes none"
    differ = [f"sampling.{key}" for key in DRAWN_BY if getattr(one.sampling, key) != getattr(other.sampling, key)]
    differ += [key for key in ("api", "prompt") if getattr(one, key) != getattr(other, key)]
    return f"differ in {' and '.join(differ)}" if differ else ""
