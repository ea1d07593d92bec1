"""Models that a task of Inspect asks, all in one process; it begins with the first request."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adaptive_eval.endpoints import settings
from adaptive_eval.endpoints.types import Answer, EndpointStats, RetryGate
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.machine.supply import Supply
from adaptive_eval.machine.trial import Request
from adaptive_eval.supplies.opening import Models, SuppliedModel, SupplyContext, request_limits

if TYPE_CHECKING:
    from adaptive_eval.inspect.endpoint import InspectEndpoint

FEW_RETRIES = 1
"""Retries that Inspect makes of a model's request if nobody is patient."""


class InspectClient:
    """A model that Inspect asks: each trial is a sample, whose answer comes with its score."""

    def __init__(self, endpoint: "InspectEndpoint", model: SuppliedModel) -> None:
        self._endpoint, self._model = endpoint, model

    async def ask(self, request: Request, retry_gate: RetryGate | None) -> Sequence[Answer]:
        """Run the samples of the trials."""
        question, model = request.question, self._model
        prompt = model.prompt(question)
        samples = (
            self._endpoint.answer(prompt, number, model.seed(question, number), retry_gate)
            for number in request.numbers
        )
        return await asyncio.gather(*samples)

    @property
    def stats(self) -> EndpointStats:
        """The traffic of the samples so far."""
        return self._endpoint.stats


def open_supply(context: SupplyContext, models: Models) -> Mapping[int, Supply]:
    """Open these models."""
    # imported here: an extra
    from adaptive_eval.inspect.endpoint import InspectEndpoint
    from adaptive_eval.inspect.process import InspectProcess
    from adaptive_eval.inspect.types import InspectModel

    config, tasks = context.config, context.config.inspect_tasks
    configs = [model.config for model in models.values()]
    described = [
        InspectModel(
            name=model.name,
            inspect=model.inspect_name,
            config=model.inspect_options,
            args=model.inspect_args,
            slots=model.concurrency.in_flight,
            token_limit=model.sampling.max_tokens,
        )
        for model in configs
    ]
    logs, retries = context.logs, None if context.patient else FEW_RETRIES
    where = (config.folder, context.keys, logs / "inspect", logs / "inspect.log")
    process = InspectProcess(tasks, described, *where, retries, context.redactor)
    context.stack.push_async_callback(process.close)
    asked = {}
    for at, (number, model) in enumerate(models.items()):
        endpoint = InspectEndpoint(
            at,
            process,
            model.config.inspect_name,
            tasks,
            settings.DEFAULT.attempts,
            only_right_and_wrong="score" not in open_rubric(config.rubric).needs,
            counts_usd=config.budget.usd is not None,
            has_answered=model.name in context.answered,
        )
        asked[number] = model.asked(InspectClient(endpoint, model), request_limits(model.config).slots)
    return context.supply(asked)
