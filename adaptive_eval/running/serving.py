"""Opening the servers of a run: real ones, those that it starts itself, and the simulator in this process."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.prepare import PreparedRun, launch_words, missing_programs, seed_base
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.batches.opening import open_batches
from adaptive_eval.endpoints.batches.types import BatchConfig
from adaptive_eval.endpoints.load import LoadWatch
from adaptive_eval.endpoints.never_asked import NeverAsked
from adaptive_eval.endpoints.opening import open_endpoint
from adaptive_eval.endpoints.redaction import forms_of, kept_from_answers
from adaptive_eval.endpoints.secrets import secrets_in
from adaptive_eval.endpoints.types import Endpoint, EndpointConfig, Notice
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.launch.command import environment_of, free_ports
from adaptive_eval.launch.endpoint import LaunchedEndpoint
from adaptive_eval.launch.host import ExclusivePlaces, Host
from adaptive_eval.launch.pooled import PooledEndpoint
from adaptive_eval.launch.server import LaunchedServer, ServerSpec
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.store import Store
from adaptive_eval.supply.batches import BatchedEndpoint
from adaptive_eval.supply.hosts import ServerHost

LOGS = "logs"
"""The folder in a run's directory that servers print to."""


def open_hosts(
    config: RunConfig,
    environment: Mapping[str, str],
    logs: Path,
    places: ExclusivePlaces,
    notices: Sequence[Notice] = (),
) -> list[Host]:
    """A host for each launched model, or for those that share one; nothing is started. Raises `ConfigError`."""
    require_programs(config, environment)
    if config.servers.pool is not None and config.servers.pool.of_cluster:
        raise ConfigError("pool.places: cluster needs a cluster: run it with --ray, or name places of this machine")
    ports, hosts = free_ports(), []
    for group in config.serving_groups:
        for place in group.places or (None,):
            servers = {
                number: open_server(config, number, environment, logs, place, ports, notices) for number in group.models
            }
            hosts.append(Host(place, servers, places))
    return hosts


def require_programs(config: RunConfig, environment: Mapping[str, str]) -> None:
    """Raise `ConfigError` where the program of a server is not on this machine."""
    if problems := [f"{name}: {problem}" for name, problem in missing_programs(config, environment)]:
        raise ConfigError("\n".join(problems))


def open_server(
    config: RunConfig,
    number: int,
    environment: Mapping[str, str],
    logs: Path,
    place: str | None,
    ports: Iterator[int],
    notices: Sequence[Notice] = (),
) -> LaunchedServer:
    """The server of a model at a place, which is not started; raises `ConfigError`."""
    model = config.models[number]
    spec_at = partial(_spec, model, config, environment, logs, place)
    return LaunchedServer(spec_at, ports, _opener(model, environment, config.folder, notices))


def _spec(
    model: ModelConfig, config: RunConfig, environment: Mapping[str, str], logs: Path, place: str | None, port: int
) -> ServerSpec:
    """Command, environment and log of the server of this model at this port."""
    launch, pool = model.launch, config.servers.pool
    assert launch is not None
    in_pool = pool is not None and model.in_pool
    placed = {name: str(value) for name, value in pool.variables.items()} if pool is not None and in_pool else {}
    sees = environment_of(launch, model.model, str(port), environment, place or "", placed)
    return ServerSpec(
        model=model.name,
        port=port,
        command=launch_words(model, launch, str(port), place or ""),
        environment=sees,
        folder=config.folder,
        log=logs / f"{file_name(f'{model.name}@{place}' if in_pool and place else model.name)}.log",
        health=launch.health,
        timeout=launch.timeout,
        place=place,
        sleeps=launch.sleep,
        overlaps=launch.overlap,
        secrets=forms_of(secrets_in(sees, () if model.api_key_env is None else (model.api_key_env,))),
    )


def _opener(
    model: ModelConfig, keys: Mapping[str, str], folder: Path, notices: Sequence[Notice]
) -> Callable[[str], Endpoint]:
    """Opens the endpoint of a model whose server listens at an address."""
    if (problem := model.missing_key(keys)) is not None:
        raise ConfigError(problem)

    def opened(root: str) -> Endpoint:
        address = model.model_copy(update={"base_url": f"{root}/v1"})
        return open_endpoint(
            address, model.sampling, model.concurrency, keys=keys, ready=True, folder=folder, notices=notices
        )

    return opened


def file_name(name: str) -> str:
    """A model's name as that of a file, and of no other model's."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80]
    return plain if plain == name else f"{plain}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


class StartedHost(ServerHost, Protocol):
    """A host that starts servers, here or elsewhere."""

    @property
    def up(self) -> bool:
        """One of its models is served."""
        ...

    async def unload(self, *, at_once: bool = False) -> None:
        """Serve nothing."""
        ...

    def kill(self) -> None:
        """Make what is being stopped end at once."""
        ...


@dataclass(slots=True)
class Serving:
    """Endpoints and hosts that serve the models of a run."""

    endpoints: Sequence[Endpoint]
    """One for each model, in their order."""
    hosts: Sequence[StartedHost] = ()
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
class RemoteHosts:
    """Remote hosts, and the endpoint of each model that they serve, by model index."""

    hosts: Sequence[StartedHost]
    endpoints: Mapping[int, Endpoint]


class RemoteServers(Protocol):
    """Starts the servers of a run on other machines."""

    def open(self, prepared: PreparedRun, store: Store) -> RemoteHosts:
        """Hosts for the models of the run, which is stored there; nothing is started."""
        ...


@asynccontextmanager
async def opened_endpoints(
    config: RunConfig, logs: Path, *, patient: bool = True, elsewhere: RemoteHosts | None = None
) -> AsyncIterator[Serving]:
    """Open everything that serves the models; in the end all is closed, and every server stopped.

    What servers print goes into the folder `logs`; who is `patient` waits for places that other runs have. Servers are
    started on this machine, unless `elsewhere` says otherwise.
    """
    keys = read_environment(config.folder)
    async with AsyncExitStack() as stack:
        simulated = await _simulator(config, stack)
        shared = [place for group in config.serving_groups for place in group.places]
        places = ExclusivePlaces(shared, config.name, patient=patient)
        stack.callback(places.release)
        notices = allow_open_files(config)
        loads = LoadWatch()
        if elsewhere is None:
            elsewhere = _open_local_hosts(config, keys, logs, places, notices)
        hosts, launched = elsewhere.hosts, elsewhere.endpoints
        if config.benchmark is not None:
            launched = {**launched, **_inspected(config, config.benchmark, keys, logs, stack)}
        endpoints: list[Endpoint] = []
        for number, model in enumerate(config.models):
            endpoint: Endpoint | None = launched.get(number)
            if model.recorded is not None:
                endpoint = NeverAsked()
            elif endpoint is None:
                address = _address(model, simulated)
                endpoint = open_endpoint(
                    address,
                    model.sampling,
                    model.concurrency,
                    keys=keys,
                    loads=loads,
                    folder=config.folder,
                    notices=notices,
                )
                if model.batch is not None:
                    endpoint = _batched(model, model.batch, address, endpoint, keys, config.folder)
            stack.push_async_callback(endpoint.close)
            endpoints.append(endpoint)
        serving = Serving(endpoints, hosts, kept_from_answers(((one, one.sampling) for one in config.asked), keys))
        try:
            yield serving
        finally:
            serving.ending = True
            await asyncio.gather(*(host.unload(at_once=serving.at_once) for host in hosts))


def _inspected(
    config: RunConfig, benchmark: BenchmarkConfig, keys: Mapping[str, str], logs: Path, stack: AsyncExitStack
) -> Mapping[int, Endpoint]:
    """The models that Inspect asks, all in one process; it begins with the first request."""
    from adaptive_eval.inspect.endpoint import InspectEndpoint
    from adaptive_eval.inspect.process import InspectProcess
    from adaptive_eval.inspect.types import InspectModel

    models = [
        InspectModel(
            name=model.name,
            inspect=model.inspect or "",
            config=dict(model.config),
            args=dict(model.args),
            slots=model.concurrency.in_flight,
            token_limit=model.sampling.max_tokens,
        )
        for model in config.asked
    ]
    process = InspectProcess(benchmark, models, config.folder, keys, logs / "inspect", logs / "inspect.log")
    stack.push_async_callback(process.close)
    numbers = [number for number, model in enumerate(config.models) if model.recorded is None]
    return {
        number: InspectEndpoint(
            at,
            process,
            benchmark,
            seed_base(config, config.models[number]),
            config.models[number].concurrency.attempts,
            only_right_and_wrong="score" not in open_rubric(config.rubric).needs,
            counts_usd=config.budget.usd is not None,
        )
        for at, number in enumerate(numbers)
    }


def _open_local_hosts(
    config: RunConfig, keys: Mapping[str, str], logs: Path, places: ExclusivePlaces, notices: Sequence[Notice]
) -> RemoteHosts:
    hosts = open_hosts(config, keys, logs, places, notices)
    return RemoteHosts(hosts, _endpoints_by_model(hosts))


def _endpoints_by_model(hosts: Sequence[Host]) -> dict[int, Endpoint]:
    """The endpoint of each launched model, which reaches its servers wherever they run."""
    found: dict[int, list[LaunchedEndpoint]] = {}
    for host in hosts:
        for number, server in host.servers.items():
            found.setdefault(number, []).append(server.endpoint)
    return {number: one[0] if len(one) == 1 else PooledEndpoint(one) for number, one in found.items()}


def _batched(
    model: ModelConfig,
    settings: BatchConfig,
    address: EndpointConfig,
    direct: Endpoint,
    keys: Mapping[str, str],
    folder: Path,
) -> BatchedEndpoint:
    """The model by its batch service; `direct` is where patience ends."""
    service = open_batches(address, model.sampling, model.concurrency, settings, keys=keys, folder=folder)
    return BatchedEndpoint(model.name, direct, service, model.concurrency.attempts)


def allow_open_files(config: RunConfig) -> list[Notice]:
    """Raise the limit of open files; returns a notice if that is not enough."""
    servers = [model.concurrency.in_flight for model in config.asked for _ in model.replicas]
    wanted = open_files.wanted_for(sum(servers), len(servers))
    allowed = open_files.allow(wanted)
    return [] if allowed >= wanted else [Notice("few_open_files", open_files.too_few(wanted, allowed))]


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
