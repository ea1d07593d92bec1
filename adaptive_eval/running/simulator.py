"""A simulated server in this process, for models that need one."""

from contextlib import AsyncExitStack

from adaptive_eval.config.run import RunConfig


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
