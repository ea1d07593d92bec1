"""Opens whatever answers for the models of a run.

A *source* opens the endpoints of the models that it has. To add one, write it, and name it in `SOURCES`, before
`_direct`, which has all models that are left.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.prepare import seed_base
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.batches.opening import open_batches
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.load import LoadWatch
from adaptive_eval.endpoints.redaction import answer_secrets
from adaptive_eval.endpoints.types import Again, Answer, Endpoint, EndpointStats, Health, Notice, Prompt
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.launch.host import ExclusivePlaces
from adaptive_eval.running.launched import OpenedHosts, open_hosts
from adaptive_eval.supply.batches import BatchedEndpoint
from adaptive_eval.supply.hosts import ServerHost


@dataclass(slots=True)
class Serving:
    """Endpoints and hosts that serve the models of a run."""

    endpoints: Sequence[Endpoint]
    """One for each model, in their order."""
    hosts: Sequence[ServerHost] = ()
    """Hosts that start servers; each must be loaded before its endpoint answers."""
    secrets: tuple[str, ...] = ()
    """Secrets that servers are sent, in every form; no answer is stored with one."""
    ending: bool = False
    """Servers are being stopped."""
    at_once: bool = False
    """Servers get no time to end."""

    def hurry(self) -> None:
        """Servers get no more time to end."""
        self.at_once = True
        if self.ending:
            for host in self.hosts:
                host.kill()


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Values that a source may need to open endpoints."""

    config: RunConfig
    keys: Mapping[str, str]
    """The environment, completed by .env."""
    logs: Path
    """The folder for the logs of servers."""
    hosts: OpenedHosts
    opener: Callable[..., Endpoint]
    """Opens an endpoint at a server of others."""
    stack: AsyncExitStack
    """Closes what endpoints share after all of them."""
    patient: bool
    """Retries may take as long as they do."""
    answered: Collection[str] = ()
    """Models that have answered at an earlier start."""

    def open(self, model: ModelConfig) -> Endpoint:
        """The endpoint of a model at a server of others."""
        return self.opener(model, model.sampling, model.concurrency, has_answered=model.name in self.answered)


FEW_RETRIES = 1
"""Retries that Inspect makes of a model's request where nobody is patient."""
Models = Mapping[int, ModelConfig]
"""Models by their index in the configuration."""
Endpoints = Iterator[tuple[int, Endpoint]]
"""Endpoints, each with the index of its model; who takes one closes it."""


def _recorded(context: SourceContext, models: Models) -> Endpoints:
    return ((number, NeverAsked()) for number, model in models.items() if model.recorded is not None)


def _inspected(context: SourceContext, models: Models) -> Endpoints:
    """Models that a task of Inspect asks, all in one process; it begins with the first request."""
    config, tasks = context.config, context.config.inspect_tasks
    if not tasks:
        return
    # imported here: most runs have no such task
    from adaptive_eval.inspect.endpoint import InspectEndpoint
    from adaptive_eval.inspect.process import InspectProcess
    from adaptive_eval.inspect.types import InspectModel

    asked = [
        InspectModel(
            name=model.name,
            inspect=model.inspect or "",
            config=dict(model.config),
            args=dict(model.args),
            slots=model.concurrency.in_flight,
            token_limit=model.sampling.max_tokens,
        )
        for model in models.values()
    ]
    logs, retries = context.logs, None if context.patient else FEW_RETRIES
    errors = logs / "inspect.log"
    process = InspectProcess(tasks, asked, config.folder, context.keys, logs / "inspect", errors, retries)
    context.stack.push_async_callback(process.close)
    for at, (number, model) in enumerate(models.items()):
        yield (
            number,
            InspectEndpoint(
                at,
                process,
                tasks,
                seed_base(config, model),
                model.concurrency.attempts,
                only_right_and_wrong="score" not in open_rubric(config.rubric).needs,
                counts_usd=config.budget.usd is not None,
                has_answered=model.name in context.answered,
            ),
        )


def _launched(context: SourceContext, models: Models) -> Endpoints:
    """Models whose servers the run starts."""
    for number, endpoint in context.hosts.endpoints.items():
        endpoint.answered_before = context.config.models[number].name in context.answered
        yield number, endpoint


def _batched(context: SourceContext, models: Models) -> Endpoints:
    """Models that are asked through a batch service, and directly where patience ends."""
    for number, model in models.items():
        if model.batch is not None:
            keys, folder = context.keys, context.config.folder
            service = open_batches(model, model.sampling, model.concurrency, model.batch, keys=keys, folder=folder)
            yield number, BatchedEndpoint(model.name, context.open(model), service, model.concurrency.attempts)


def _direct(context: SourceContext, models: Models) -> Endpoints:
    """Models at servers of others."""
    return ((number, context.open(model)) for number, model in models.items())


SOURCES: Sequence[Callable[[SourceContext, Models], Endpoints]] = (_recorded, _inspected, _launched, _batched, _direct)
"""Each is given the models that those before it do not have."""


@asynccontextmanager
async def opened_endpoints(
    config: RunConfig,
    logs: Path,
    *,
    patient: bool = True,
    elsewhere: OpenedHosts | None = None,
    answered: Collection[str] = (),
) -> AsyncIterator[Serving]:
    """Open everything that serves the models; in the end all is closed, and every server stopped.

    What servers print goes into the folder `logs`; who is `patient` waits for places that other runs have, and for all
    retries of Inspect. Servers are started on this machine, unless `elsewhere` says otherwise. `answered`: models that
    have answered at an earlier start.
    """
    keys = read_environment(config.folder)
    async with AsyncExitStack() as stack:
        config = await _with_simulator(config, stack)
        shared = [place for group in config.serving_groups for place in group.places]
        places = ExclusivePlaces(shared, config.name, patient=patient)
        stack.callback(places.release)
        notices = allow_open_files(config)
        hosts = elsewhere or open_hosts(config, keys, logs, places, notices)
        opener = partial(open_endpoint, keys=keys, loads=LoadWatch(), folder=config.folder, notices=notices)
        context = SourceContext(config, keys, logs, hosts, opener, stack, patient, answered)
        endpoints: dict[int, Endpoint] = {}
        for source in SOURCES:
            models = {number: model for number, model in enumerate(config.models) if number not in endpoints}
            for number, endpoint in source(context, models):
                stack.push_async_callback(endpoint.close)
                endpoints[number] = endpoint
        secrets = answer_secrets(((one, one.sampling) for one in config.asked), keys)
        serving = Serving([endpoints[number] for number in range(len(config.models))], hosts.hosts, secrets)
        try:
            yield serving
        finally:
            serving.ending = True
            await asyncio.gather(*(host.unload(at_once=serving.at_once) for host in serving.hosts))


def allow_open_files(config: RunConfig) -> list[Notice]:
    """Raise the limit of open files; returns a notice if that is not enough."""
    servers = [model.concurrency.in_flight for model in config.asked for _ in model.replicas]
    wanted = open_files.wanted_for(sum(servers), len(servers))
    allowed = open_files.allow(wanted)
    return [] if allowed >= wanted else [Notice("few_open_files", open_files.too_few(wanted, allowed))]


async def _with_simulator(config: RunConfig, stack: AsyncExitStack) -> RunConfig:
    """The configuration with a server of the questions' world in this process, where a model needs one."""
    if config.questions.world is None or not any(model.simulate for model in config.models):
        return config
    # imported here: most runs have no simulated model
    from adaptive_eval.simulate.server import SimulatedServer
    from adaptive_eval.simulate.worlds import WORLDS

    server = await stack.enter_async_context(SimulatedServer(WORLDS[config.questions.world]()))
    at = {"base_url": server.base_url}
    models = tuple(model.model_copy(update=at) if model.simulate else model for model in config.models)
    return config.model_copy(update={"models": models})


class NeverAsked:
    """The endpoint of a recorded model, whose servers may be gone and are never asked."""

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """Raise `AssertionError`: a recorded model is never asked."""
        raise AssertionError("a recorded model was asked")

    async def check(self) -> Health:
        """Report that nothing is needed."""
        return Health(())

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    @property
    def stats(self) -> EndpointStats:
        """No traffic."""
        return EndpointStats()
