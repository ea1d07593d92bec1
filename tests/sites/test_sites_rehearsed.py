"""Of a run that is only rehearsed: which of its sites the cluster has places for."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from live_runs import Site

from adaptive_eval.config.load import load_config
from adaptive_eval.endpoints.types import ReplicaHealth
from adaptive_eval.sites.rehearsing import ClusterRoom, find_places

ELSEWHERE = {"name": "bob", "base_url": "http://127.0.0.1:1/v1"}


@dataclass
class Roomy:
    """A cluster with so many places."""

    found: ClusterRoom

    def room(self, resources: Mapping[str, float]) -> ClusterRoom:
        assert resources == {"CPU": 2.0, "GPU": 4.0}
        return self.found

    def missing(self, resources: Mapping[str, float]) -> str:
        return "others have it"


def found(site: Site, sites: int, room: ClusterRoom) -> ReplicaHealth:
    launch = {"command": "serve --port {port}", "sites": sites, "resources": {"CPU": 2, "GPU": 4}}
    config = load_config(site.write(models=[{"name": "ada", "launch": launch}, ELSEWHERE]), ())
    (health,) = find_places(config, Roomy(room)).values()
    (one,) = health.replicas
    return one


@pytest.mark.parametrize(
    ("sites", "room", "healthy", "where", "told"),
    [
        (1, ClusterRoom(5, 9), True, "1 site with CPU 2, GPU 4", "every one has a place, 1 free now; would be"),
        (4, ClusterRoom(1, 4), True, "4 sites with CPU 2, GPU 4 each", "every one has a place, 1 free now; would be"),
        (4, ClusterRoom(0, 4), True, "4 sites with", "every one has a place, 0 free now (others have it); would be"),
        (4, ClusterRoom(2, 3), True, "4 sites with", "the cluster has room for 3, 2 free now; would be"),
        (4, ClusterRoom(0, 0), False, "4 sites with", "there is no place: others have it"),
    ],
)
def test_what_is_told(site: Site, sites: int, room: ClusterRoom, healthy: bool, where: str, told: str) -> None:
    one = found(site, sites, room)
    assert one.healthy == healthy and one.url.startswith(where) and one.detail.startswith(told)
    assert not healthy or one.detail.endswith("started there: serve --port PORT")


def test_of_a_pool_the_places_that_its_models_share_are_told(site: Site) -> None:
    """Each takes what that model needs which needs most."""
    needs = {"ada": {"CPU": 2, "GPU": 1}, "cyd": {"CPU": 1, "GPU": 4}}
    models = [
        {"name": name, "launch": {"command": "serve --port {port}", "resources": each}} for name, each in needs.items()
    ]
    config = load_config(site.write(models=models, servers={"pool": {"places": "cluster", "most": 3}}), ())
    found = find_places(config, Roomy(ClusterRoom(1, 2)))
    assert list(found) == ["ada", "cyd"]
    for health in found.values():
        (one,) = health.replicas
        assert one.url == "3 shared sites with CPU 2, GPU 4 each"
        assert one.detail.startswith("the cluster has room for 2, 1 free now; would be started there: serve")
