"""Checks of `trials.seeds: coupled`, and warnings about models that are unlikely to be coupled."""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.config.decisions import ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.listed_models import Models, recorded_models
from adaptive_eval.config.problems import Problem
from adaptive_eval.config.run import ModelConfig, PriorEvidenceConfig, RunConfig

COUPLED_OBJECTIVES = ("baseline", "pairs")
"""Objectives with fixed comparisons: in a ranking models stop at different times, and share few trials."""
DRAWN_BY = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "reasoning_effort")
"""Settings of `sampling` that change which token a random number selects."""
WITHOUT_SEEDS = "anthropic"
"""A batch service without seeds."""


def why_uncoupled(config: RunConfig) -> Iterator[str]:
    """A sentence for each comparison whose models are unlikely to be coupled."""
    if config.trials.seeds != "coupled":
        return
    models = {model.name: model for model in config.models}
    for one, other in _compared_pairs(config.objective.options, list(models)):
        if why := _obstacle(models[one], models[other]):
            yield (
                f"{one} and {other} share their seeds, but {why}: their answers will hardly be correlated, and they "
                "are then compared as independent models"
            )


def _compared_pairs(options: Mapping[str, object], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The pairs that the objectives baseline and pairs compare."""
    baseline, pairs = options.get("baseline"), options.get("pairs")
    if isinstance(baseline, str):
        yield from ((name, baseline) for name in names if name != baseline)
    elif isinstance(pairs, tuple):
        yield from pairs


def _obstacle(one: ModelConfig, other: ModelConfig) -> str:
    """Why two models are unlikely to be coupled; empty if no reason is known."""
    for model in (one, other):
        if model.batch is not None and model.batch.kind == WITHOUT_SEEDS:
            return f"the batch service of {model.name} takes none"
    differ = [f"sampling.{key}" for key in DRAWN_BY if getattr(one.sampling, key) != getattr(other.sampling, key)]
    differ += [key for key in ("api", "prompt") if getattr(one, key) != getattr(other, key)]
    return f"differ in {' and '.join(differ)}" if differ else ""


def coupled_problems(
    trials: TrialsConfig,
    objective: ObjectiveConfig,
    stopping: StoppingConfig,
    models: Models = (),
    prior_evidence: PriorEvidenceConfig | None = None,
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
    if prior_evidence is not None:
        yield Problem(("prior_evidence",), rule, mend)
    for number, _ in recorded_models(models):
        yield Problem(("models", number, "recorded"), rule, mend)
