"""Opening the servers of a run: real ones, and the simulator in this process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from adaptive_eval.config.environment import read_environment
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.load_watch import LoadWatch
from adaptive_eval.endpoints.opening import open_endpoint
from adaptive_eval.endpoints.types import Endpoint, EndpointConfig


@asynccontextmanager
async def opened_endpoints(config: RunConfig) -> AsyncIterator[Sequence[Endpoint]]:
    """An endpoint for each model, in their order; all are closed in the end."""
    keys = read_environment(config.folder)
    async with AsyncExitStack() as stack:
        simulated = await _simulator(config, stack)
        endpoints, loads = [], LoadWatch()
        for model in config.models:
            address = _address(model, simulated)
            endpoint = open_endpoint(address, model.sampling, model.concurrency, keys=keys, loads=loads)
            stack.push_async_callback(endpoint.close)
            endpoints.append(endpoint)
        yield endpoints


async def _simulator(config: RunConfig, stack: AsyncExitStack) -> str | None:
    """The base URL of a simulated server of the questions' world, where a model needs one."""
    if config.questions.world is None or not any(model.simulate for model in config.models):
        return None
    # imported here: most runs have no simulated model
    from adaptive_eval.simulate.server import SimulatedServer
    from adaptive_eval.simulate.worlds import WORLDS

    server = await stack.enter_async_context(SimulatedServer(WORLDS[config.questions.world]()))
    return server.base_url


def _address(model: ModelConfig, simulated: str | None) -> EndpointConfig:
    return model.model_copy(update={"base_url": simulated}) if model.simulate and simulated else model
