"""What can be known before a run of why `seeds: coupled` may couple nothing: vocabularies and samplers are not."""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.config.run import ModelConfig, RunConfig

DRAWN_BY = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "reasoning_effort")
"""Settings of `sampling` that change what a random number draws."""
WITHOUT_SEEDS = "anthropic"
"""A batch service that takes no seeds."""


def why_uncoupled(config: RunConfig) -> Iterator[str]:
    """A sentence for each comparison whose models will hardly draw alike."""
    if config.seeds != "coupled":
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
    """What stands in the way; nothing where nothing is known to."""
    for model in (one, other):
        if model.batch is not None and model.batch.kind == WITHOUT_SEEDS:
            return f"the batch service of {model.name} takes none"
    differ = [f"sampling.{key}" for key in DRAWN_BY if getattr(one.sampling, key) != getattr(other.sampling, key)]
    differ += [key for key in ("api", "prompt") if getattr(one, key) != getattr(other, key)]
    return f"differ in {' and '.join(differ)}" if differ else ""
