"""Opens whatever answers for the models of a run, and closes it."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.types import Again, Answer, Endpoint, EndpointStats, Health, Prompt
from adaptive_eval.running.sources import OpenedHosts, SourceContext, open_sources
from adaptive_eval.supplies.opening import allow_open_files as allow_open_files
from adaptive_eval.supply.hosts import ServerHost
from adaptive_eval.supply.supplies import OpenSupply


@dataclass(slots=True)
class Serving:
    """Endpoints and hosts that serve the models of a run."""

    endpoints: Sequence[Endpoint]
    """One for each model, in their order."""
    hosts: Sequence[ServerHost] = ()
    """Hosts that start servers; each must be loaded before its endpoint answers."""
    supplies: Sequence[OpenSupply] = ()
    """For models that are not always there, or whose requests outlive a start."""
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


@asynccontextmanager
async def opened_endpoints(
    config: RunConfig,
    logs: Path,
    *,
    redactor: Redactor,
    patient: bool = True,
    elsewhere: OpenedHosts | None = None,
    answered: Collection[str] = (),
) -> AsyncIterator[Serving]:
    """Open everything that serves the models; in the end all is closed, and every server stopped.

    `redactor` is that of the run.

    What servers print goes into the folder `logs`; who is `patient` waits for places that other runs have, and for all
    retries of Inspect. Servers are started on this machine, unless `elsewhere` says otherwise. `answered`: models that
    have answered at an earlier start.
    """
    keys = read_environment(config.folder)
    async with AsyncExitStack() as stack:
        config = await with_simulator(config, stack)
        notices = allow_open_files(config)
        opener = partial(open_endpoint, keys=keys, shared_time=SharedTime(), folder=config.folder, notices=notices)
        context = SourceContext(config, keys, redactor, logs, notices, elsewhere, opener, stack, patient, answered)
        endpoints: dict[int, Endpoint] = {}
        hosts, supplies = list[ServerHost](), list[OpenSupply]()
        for source in open_sources(context):
            for number, endpoint in source.endpoints:
                stack.push_async_callback(endpoint.close)
                endpoints[number] = endpoint
            hosts += source.hosts
            supplies += [source.open_supply] if source.open_supply is not None else []
        for number, model in enumerate(config.models):
            if number not in endpoints:
                endpoints[number] = NeverAsked() if model.recorded is not None else context.open(model)
                stack.push_async_callback(endpoints[number].close)
        serving = Serving([endpoints[number] for number in range(len(config.models))], hosts, supplies)
        try:
            yield serving
        finally:
            serving.ending = True
            await asyncio.gather(*(host.unload(at_once=serving.at_once) for host in serving.hosts))


async def with_simulator(config: RunConfig, stack: AsyncExitStack) -> RunConfig:
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
