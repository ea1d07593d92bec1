"""What a cluster has for the sites of a run that is only rehearsed: nothing is placed, and nothing started."""

import shlex
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from adaptive_eval.config.run import ModelConfig, RunConfig, ServingGroup
from adaptive_eval.endpoints.types import Health, ReplicaHealth
from adaptive_eval.launch.command import command_of
from adaptive_eval.launch.types import LaunchConfig
from adaptive_eval.sites.opening import resource_words, resources_of_group


class ClusterRoom(NamedTuple):
    """How many sites with some resources there is room for: now, and when nobody else has anything."""

    now: int
    ever: int


class SiteRoom(Protocol):
    """Source of a cluster's resources."""

    def room(self, resources: Mapping[str, float]) -> ClusterRoom:
        """For how many sites there is room."""

    def missing(self, resources: Mapping[str, float]) -> str:
        """Why there is no room now."""


def places_found(config: RunConfig, cluster: SiteRoom) -> dict[str, Health]:
    """For each model that has sites, whether the cluster can serve it; each, or each pool, is looked at by itself."""
    found = {
        number: Health((_found(config.models[number], launch, config, group, cluster),))
        for group in config.serving_groups
        for number in group.models
        if (launch := config.models[number].launch) is not None
    }
    return {config.models[number].name: health for number, health in sorted(found.items())}


def _found(
    model: ModelConfig, launch: LaunchConfig, config: RunConfig, group: ServingGroup, cluster: SiteRoom
) -> ReplicaHealth:
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
