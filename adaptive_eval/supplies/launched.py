"""Models whose servers a run starts: on this machine, or on others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.prepare import missing_programs
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.secrets import secret_values
from adaptive_eval.endpoints.types import EarlierTimes, Endpoint, Notice
from adaptive_eval.launch.command import free_ports, server_command, server_environment
from adaptive_eval.launch.endpoint import AskServer
from adaptive_eval.launch.host import ExclusivePlaces, Host
from adaptive_eval.launch.hosts import ServerHost
from adaptive_eval.launch.server import LaunchedServer, ServerSpec
from adaptive_eval.launch.types import place_names, place_variables
from adaptive_eval.machine.supply import AskedModel, Demand, EndpointSupply, Post, Supply
from adaptive_eval.supplies.opening import Models, OpenedHosts, SuppliedModel, SupplyContext, file_name
from adaptive_eval.supplies.pool import PooledModel, ServerPool


class LaunchedSupply(EndpointSupply):
    """Models whose servers are started and stopped as they need them."""

    def __init__(
        self,
        hosts: Sequence[ServerHost],
        models: Mapping[int, AskedModel],
        pooled: Mapping[int, PooledModel],
        post: Post,
        on_error: Callable[[BaseException], None],
        *,
        is_capped: bool,
    ) -> None:
        super().__init__(models, post, on_error, is_capped=is_capped)
        self.pool = ServerPool(hosts, pooled, post, self.post_capacity, on_error)

    def serve(self, demand: Mapping[int, Demand]) -> None:
        """Start and stop the servers that are due."""
        super().serve(demand)
        self.pool.serve(demand)

    def capacity(self, model: int) -> int:
        """The slots of all servers of a model."""
        servers = self.pool.servers(model)
        return servers * self._models[model].slots + (self._stuck[model] if servers else 0)

    async def close(self) -> None:
        """Cancel all requests, and start and stop nothing more; servers end with their hosts."""
        await self.pool.close()
        await super().close()


def open_supply(context: SupplyContext, models: Models) -> Mapping[int, Supply]:
    """Open these models, whose servers are on this machine or elsewhere; raises `ConfigError`."""
    opened = hosts_here(context, models) if context.remote is None else context.remote(context, models)
    context.servers.hosts += opened.hosts
    limits = {number: model.config.concurrency for number, model in models.items()}
    supply = LaunchedSupply(
        opened.hosts,
        {number: model.asked(opened.clients[number], limits[number].in_flight) for number, model in models.items()},
        {
            number: PooledModel(model.name, limits[number].in_flight * limits[number].samples_per_request)
            for number, model in models.items()
        },
        context.post,
        context.on_error,
        is_capped=context.is_capped,
    )
    return dict.fromkeys(models, supply)


def hosts_here(context: SupplyContext, models: Models) -> OpenedHosts:
    """A host for each launched model, or for those that share one."""
    config, environment = context.config, context.keys
    require_programs(config, environment)
    require_no_cluster(config)
    shared = [place for group in config.serving_groups for place in group.places]
    places = ExclusivePlaces(shared, config.name, patient=context.patient)
    context.stack.callback(places.release)
    opener, hosts = ServerOpener(config, environment, context.logs, free_ports(), context.notices), []
    numbers = {model.name: number for number, model in models.items()}
    clients = {number: context.served(model, _asking(model)) for number, model in models.items()}
    for group in config.serving_groups:
        for place in group.places or (None,):
            servers = {numbers[config.models[index].name]: opener.open(index, place) for index in group.models}
            hosts.append(Host(place, servers, places))
            for number, server in servers.items():
                clients[number].add(server.served)
    return OpenedHosts(hosts, clients)


def _asking(model: SuppliedModel) -> AskServer:
    return lambda endpoint, request, retry_gate: model.client(endpoint).ask(request, retry_gate)


def require_no_cluster(config: RunConfig) -> None:
    """Raise `ConfigError` where servers are asked for that this machine alone cannot give."""
    needs = "needs a cluster: run it with --ray, or"
    if isinstance(config.pool, int):
        raise ConfigError(f"pool: {config.pool} {needs} name places of this machine, as in pool: [0, 1]")
    for number, launch in config.launched.items():
        if launch.sites > 1:
            key = f"models.{config.models[number].name}.launch.sites: {launch.sites}"
            raise ConfigError(f"{key} {needs} remove it, for one server on this machine")


def require_programs(config: RunConfig, environment: Mapping[str, str]) -> None:
    """Raise `ConfigError` where the program of a server is not on this machine."""
    if problems := [f"{name}: {problem}" for name, problem in missing_programs(config, environment)]:
        raise ConfigError("\n".join(problems))


@dataclass(frozen=True, slots=True)
class ServerOpener:
    """Opens servers of a configuration on one machine; nothing is started."""

    config: RunConfig
    environment: Mapping[str, str] = field(repr=False)
    logs: Path
    ports: Iterator[int]
    notices: Sequence[Notice] = ()

    def open(self, number: int, place: str | None) -> LaunchedServer:
        """The server of a model at a place; raises `ConfigError`."""
        model, config = self.config.models[number], self.config
        if (problem := model.missing_key(self.environment)) is not None:
            raise ConfigError(problem)
        keys = self.environment
        opener = partial(open_endpoint, keys=keys, ready=True, folder=config.folder, notices=self.notices)

        def opened(root: str, has_answered: bool) -> Endpoint:
            """The endpoint of the server at an address."""
            address = model.model_copy(update={"base_url": f"{root}/v1"})
            limits = config.concurrency.with_limits(model.concurrency)
            earlier = EarlierTimes() if has_answered else None
            return opener(address, model.sampling, limits, earlier=earlier, independent=model.sampled is not None)

        return LaunchedServer(partial(self._spec, model, place), self.ports, opened)

    def _spec(self, model: ModelConfig, place: str | None, port: int) -> ServerSpec:
        """Command, environment and log of the server of this model at this port."""
        launch, pool = model.launch, self.config.pool
        assert launch is not None
        placed = {} if pool is None else place_variables(pool)
        sees = server_environment(launch, model.model, str(port), self.environment, place or "", placed)
        return ServerSpec(
            model=model.name,
            port=port,
            command=server_command(launch, model.model, str(port), place or ""),
            environment=sees,
            folder=self.config.folder,
            log=self.logs / f"{file_name(f'{model.name}@{place}' if place else model.name)}.log",
            timeout=launch.timeout,
            place=place,
            sleep_level=int(launch.sleep),
            alternatives=pool is not None and len(place_names(pool)) > 1,
            redactor=Redactor(secret_values(sees, () if model.api_key_env is None else (model.api_key_env,))),
        )
