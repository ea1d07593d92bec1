"""The servers that a run starts on this machine, and the interface of those that are started elsewhere."""

from collections import defaultdict
from functools import partial
from typing import Protocol

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.running.sources import Models, OpenedHosts, OpenedSource, SourceContext
from adaptive_eval.store import Store
from adaptive_eval.supplies.launched import LOGS as LOGS
from adaptive_eval.supplies.launched import ServerOpener, require_no_cluster, require_programs
from adaptive_eval.supply.launch.command import free_ports
from adaptive_eval.supply.launch.endpoint import ServedEndpoint
from adaptive_eval.supply.launch.host import ExclusivePlaces, Host
from adaptive_eval.supply.pool import open_pool


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
