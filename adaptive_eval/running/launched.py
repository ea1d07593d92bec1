"""The servers that a run starts on this machine, and the interface of those that are started elsewhere."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.prepare import PreparedRun, missing_programs
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.secrets import secret_values
from adaptive_eval.endpoints.types import Endpoint, Notice
from adaptive_eval.running.sources import Models, OpenedHosts, OpenedSource, SourceContext
from adaptive_eval.store import Store
from adaptive_eval.supply.launch.command import free_ports, server_command, server_environment
from adaptive_eval.supply.launch.endpoint import ServedEndpoint
from adaptive_eval.supply.launch.host import ExclusivePlaces, Host
from adaptive_eval.supply.launch.server import LaunchedServer, ServerSpec
from adaptive_eval.supply.pool import open_pool

LOGS = "logs"
"""The folder in a run's directory that servers print to."""


class RemoteServers(Protocol):
    """Starts the servers of a run on other machines."""

    def open(self, prepared: PreparedRun, store: Store) -> OpenedHosts:
        """Hosts for the models of the run, which is stored there; nothing is started."""


def open_source(context: SourceContext, models: Models) -> OpenedSource:
    """Open these models, whose servers are on this machine or elsewhere; raises `ConfigError`."""
    opened = context.elsewhere or _hosts_here(context)
    for number, model in models.items():
        opened.endpoints[number].answered_before = model.name in context.answered
    return OpenedSource(opened.endpoints.items(), partial(open_pool, opened.hosts), opened.hosts)


def _hosts_here(context: SourceContext) -> OpenedHosts:
    """A host for each launched model, or for those that share one."""
    config, environment = context.config, context.keys
    require_programs(config, environment)
    require_no_cluster(config)
    shared = [place for group in config.serving_groups for place in group.places]
    places = ExclusivePlaces(shared, config.name, patient=context.patient)
    context.stack.callback(places.release)
    opener, hosts = ServerOpener(config, environment, context.logs, free_ports(), context.notices), []
    endpoints: defaultdict[int, ServedEndpoint] = defaultdict(ServedEndpoint)
    for group in config.serving_groups:
        for place in group.places or (None,):
            servers = {number: opener.open(number, place) for number in group.models}
            hosts.append(Host(place, servers, places))
            for number, server in servers.items():
                endpoints[number].add(server.served)
    return OpenedHosts(hosts, dict(endpoints))


def require_no_cluster(config: RunConfig) -> None:
    """Raise `ConfigError` where servers are asked for that this machine alone cannot give."""
    needs = "needs a cluster: run it with --ray, or"
    if config.launched and config.servers.pool is not None and config.servers.pool.on_cluster:
        raise ConfigError(f"pool.places: cluster {needs} name places of this machine")
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
            return opener(address, model.sampling, model.concurrency, has_answered=has_answered)

        return LaunchedServer(partial(self._spec, model, place), self.ports, opened)

    def _spec(self, model: ModelConfig, place: str | None, port: int) -> ServerSpec:
        """Command, environment and log of the server of this model at this port."""
        launch, pool = model.launch, self.config.servers.pool
        assert launch is not None
        in_pool = pool is not None and model.in_pool
        placed = {name: str(value) for name, value in pool.variables.items()} if pool is not None and in_pool else {}
        sees = server_environment(launch, model.model, str(port), self.environment, place or "", placed)
        return ServerSpec(
            model=model.name,
            port=port,
            command=server_command(launch, model.model, str(port), place or ""),
            environment=sees,
            folder=self.config.folder,
            log=self.logs / f"{file_name(f'{model.name}@{place}' if in_pool and place else model.name)}.log",
            timeout=launch.timeout,
            place=place,
            sleeps=launch.sleep,
            alternatives=pool is not None and in_pool and len(pool.places) > 1,
            redactor=Redactor(secret_values(sees, () if model.api_key_env is None else (model.api_key_env,))),
        )


def file_name(name: str) -> str:
    """A model's name as that of a file, and of no other model's."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80]
    return plain if plain == name else f"{plain}-{blake2b(name.encode(), digest_size=4).hexdigest()}"
