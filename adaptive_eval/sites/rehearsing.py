"""Check a cluster's resources for the sites of a dry run: nothing is placed or started."""

import shlex
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from adaptive_eval.config.run import RunConfig, ServingGroup
from adaptive_eval.endpoints.types import Health, ReplicaHealth
from adaptive_eval.launch.command import command_of
from adaptive_eval.sites.opening import resource_words, resources_of_group


class ClusterRoom(NamedTuple):
    """Number of sites that fit: now, and on an otherwise empty cluster."""

    now: int
    ever: int


class SiteRoom(Protocol):
    """Source of a cluster's resources."""

    def room(self, resources: Mapping[str, float]) -> ClusterRoom:
        """Number of sites with these resources that fit."""

    def missing(self, resources: Mapping[str, float]) -> str:
        """Why none fits now."""


def find_places(config: RunConfig, cluster: SiteRoom) -> dict[str, Health]:
    """Whether the cluster can serve each model with sites; each model, or pool, is checked on its own."""
    found = {
        number: Health((_place_health(number, config, group, cluster),))
        for group in config.serving_groups
        for number in group.models
    }
    return {config.models[number].name: health for number, health in sorted(found.items())}


def _place_health(number: int, config: RunConfig, group: ServingGroup, cluster: SiteRoom) -> ReplicaHealth:
    model, launch = config.models[number], config.launched[number]
    resources = resources_of_group(config, group)
    room, wanted = cluster.room(resources), len(group.places) or launch.sites
    each = resource_words(resources)
    of_pool = "shared " if group.places else ""
    url = f"{wanted} {of_pool}site{'s' * (wanted > 1)} with {each}{' each' * (wanted > 1)}"
    if not room.ever:
        return ReplicaHealth(url, False, f"there is no place: {cluster.missing(resources)}")
    had = "every one has a place" if room.ever >= wanted else f"the cluster has room for {room.ever}"
    others = f" ({cluster.missing(resources)})" if not room.now else ""
    free = f"{min(room.now, wanted)} free now{others}"
    return ReplicaHealth(
        url, True, f"{had}, {free}; would be started there: {shlex.join(command_of(launch, model.model))}"
    )
