"""Models that a task of Inspect asks, all in one process; it begins with the first request."""

from collections.abc import Iterator

from adaptive_eval.config.prepare import seed_base
from adaptive_eval.endpoints.types import Endpoint
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.running.sources import Models, OpenedSource, SourceContext

FEW_RETRIES = 1
"""Retries that Inspect makes of a model's request where nobody is patient."""


def open_source(context: SourceContext, models: Models) -> OpenedSource:
    """Open these models."""
    return OpenedSource(_endpoints(context, models))


def _endpoints(context: SourceContext, models: Models) -> Iterator[tuple[int, Endpoint]]:
    # imported here: an extra
    from adaptive_eval.inspect.endpoint import InspectEndpoint
    from adaptive_eval.inspect.process import InspectProcess
    from adaptive_eval.inspect.types import InspectModel

    config, tasks = context.config, context.config.inspect_tasks
    asked = [
        InspectModel(
            name=model.name,
            inspect=model.inspect_name,
            config=model.inspect_options,
            args=model.inspect_args,
            slots=model.concurrency.in_flight,
            token_limit=model.sampling.max_tokens,
        )
        for model in models.values()
    ]
    logs, retries = context.logs, None if context.patient else FEW_RETRIES
    errors = logs / "inspect.log"
    where = (config.folder, context.keys, logs / "inspect", errors)
    process = InspectProcess(tasks, asked, *where, retries, context.redactor)
    context.stack.push_async_callback(process.close)
    for at, (number, model) in enumerate(models.items()):
        yield (
            number,
            InspectEndpoint(
                at,
                process,
                model.inspect_name,
                tasks,
                seed_base(config, model),
                model.concurrency.attempts,
                only_right_and_wrong="score" not in open_rubric(config.rubric).needs,
                counts_usd=config.budget.usd is not None,
                has_answered=model.name in context.answered,
            ),
        )
