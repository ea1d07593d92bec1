"""Settings with which supplies open the models of a run, for runs, dry runs and checks."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.types import EarlierTimes, Endpoint
from adaptive_eval.machine.supply import Post
from adaptive_eval.notes.event import Event
from adaptive_eval.supplies.opening import OpenRemote, SupplyContext, allow_open_files


def supply_context(
    prepared: PreparedRun | None,
    config: RunConfig,
    directory: Path,
    created: float,
    stack: AsyncExitStack,
    redactor: Redactor,
    post: Post,
    on_error: Callable[[BaseException], None],
    *,
    is_capped: bool = False,
    events: Sequence[Event] = (),
    answered: Mapping[str, EarlierTimes] = MappingProxyType({}),
    patient: bool = True,
    remote: OpenRemote | None = None,
) -> SupplyContext:
    """The context of supplies for this configuration; arguments are fields of `SupplyContext`."""
    keys = read_environment(config.folder)
    notices = allow_open_files(config)
    opener = partial(open_endpoint, keys=keys, shared_time=SharedTime(), folder=config.folder, notices=notices)

    def open_model(model: ModelConfig) -> Endpoint:
        earlier = answered.get(model.name)
        times = EarlierTimes() if earlier is None else earlier
        return opener(model, model.sampling, model.concurrency, has_answered=earlier is not None, earlier=times)

    return SupplyContext(
        prepared,
        config,
        directory,
        created,
        keys,
        redactor,
        notices,
        stack,
        open_model,
        post,
        on_error,
        is_capped,
        events,
        answered=answered,
        patient=patient,
        remote=remote,
    )


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
