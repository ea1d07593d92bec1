"""What `trials.seeds: coupled` goes with, and what can be known before a run of why it may couple nothing: vocabularies
and samplers are not."""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.config.decisions import ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.listed_models import Models, valid_models
from adaptive_eval.config.problems import Problem
from adaptive_eval.config.run import ModelConfig, PriorEvidenceConfig, RunConfig

COUPLED_OBJECTIVES = ("baseline", "pairs")
"""Objectives whose comparisons are fixed beforehand: in a ranking models stop at different times, and share few
trials."""
DRAWN_BY = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "reasoning_effort")
"""Settings of `sampling` that change what a random number draws."""
WITHOUT_SEEDS = "anthropic"
"""A batch service that takes no seeds."""


def why_uncoupled(config: RunConfig) -> Iterator[str]:
    """A sentence for each comparison whose models will hardly draw alike."""
    if config.trials.seeds != "coupled":
        return
    models = {model.name: model for model in config.models}
    for one, other in _compared(config.objective.options, list(models)):
        if why := _why(models[one], models[other]):
            yield (
                f"{one} and {other} share their seeds, but {why}: they will hardly go together, and are then compared "
                "as independent models"
            )


def _compared(options: Mapping[str, object], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The pairs of the objectives baseline and pairs."""
    baseline, pairs = options.get("baseline"), options.get("pairs")
    if isinstance(baseline, str):
        yield from ((name, baseline) for name in names if name != baseline)
    elif isinstance(pairs, tuple):
        yield from pairs


def _why(one: ModelConfig, other: ModelConfig) -> str:
    """Obstacles to it; none if none is known."""
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
    """Comparisons are fixed beforehand, both models have trials with seeds, and variances are of differences."""
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
        "may not stand beside `trials.seeds: coupled`, which compares trial by trial: of an earlier run there are only "
        "counts"
    )
    if prior_evidence is not None:
        yield Problem(("prior_evidence",), rule, mend)
    for number, model in valid_models(models):
        if model.recorded is not None:
            yield Problem(("models", number, "recorded"), rule, mend)
