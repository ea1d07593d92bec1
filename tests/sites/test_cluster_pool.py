"""A pool of a cluster: any model is served at any place, as places come and go, and what is found stays the same."""

import sys
from pathlib import Path

import pytest
from live_runs import MODELS, RunOutcome, Site
from near_sites import NearCluster
from patient_time import HANGS
from test_sites import SERVER, LetsGo, events, places_of_its_own, run_at

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import ServerLaunched, ServerReleased, SiteLost, SitePlaced

__all__ = ["places_of_its_own"]


def written(site: Site, *flags: str, pool: object = 2, **changes: object) -> Path:
    """Three models on a pool, which has two places unless something else is said."""
    command = [sys.executable, "-S", str(SERVER), "{port}", *flags, str(site.folder)]
    models = [{"name": name, "launch": {"command": command, "timeout": HANGS}} for name in MODELS]
    settings: dict[str, object] = {"trials": {"min": 4, "max": 8, "optimize": "cost"}, "concurrency": 2}
    return site.write(**{**settings, "models": models, "pool": pool, **changes})


@pytest.fixture(scope="module")
def at_home(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    """What the run finds on two places of its own machine."""
    site = Site.make(tmp_path_factory.mktemp("home"), "")
    ended = site.run(written(site, pool=[f"{site.folder.name}-{n}-{id(site)}" for n in range(2)]))
    assert ended.exit_code == ExitCode.SPENT, ended.output
    return RunOutcome.of(site.directory())


@pytest.mark.slow
@pytest.mark.parametrize("room", [1, 2])
def test_a_run_finds_the_same_however_many_places_come(site: Site, at_home: RunOutcome, room: int) -> None:
    cluster = NearCluster(room=room)
    assert run_at(cluster, written(site, "held"), site, LetsGo(site, room)) == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == at_home
    assert cluster.peak == room
    served = [(event.model, event.on) for event in events(site, ServerLaunched)]
    assert {model for model, _ in served} == set(MODELS) and len({on for _, on in served}) == room
    assert len(served) > len(events(site, SitePlaced)), "models are swapped where they are"
    assert all(event.on in ("place 1", "place 2") for event in events(site, ServerReleased))


@pytest.mark.slow
def test_what_a_lost_place_had_is_served_at_another(site: Site, at_home: RunOutcome) -> None:
    """Each of the first places is lost with answers on their way; models go where there is room."""
    cluster = NearCluster([1, 0, 2, 1, 0, 3], room=2)
    assert run_at(cluster, written(site), site) == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == at_home
    # their lives are 13 messages together, the run is more: only one, whose server is slow to start, may outlive it
    assert len(events(site, SiteLost)) >= 5


@pytest.mark.slow
def test_a_model_whose_places_are_lost_again_and_again_is_given_up(site: Site) -> None:
    cluster = NearCluster([0] * 100, room=2)
    assert run_at(cluster, written(site), site) == ExitCode.ENDPOINTS
    assert len(cluster.placed) <= len(MODELS) * 2 * 4


@pytest.mark.slow
def test_models_that_share_a_place_of_the_cluster_take_turns(site: Site, at_home: RunOutcome) -> None:
    cluster = NearCluster()
    assert run_at(cluster, written(site, pool=1), site) == ExitCode.SPENT
    assert cluster.peak == 1 and {event.on for event in events(site, ServerLaunched)} == {"place 1"}
    assert RunOutcome.of(site.directory()) == at_home


def test_a_pool_of_a_cluster_needs_a_cluster(site: Site) -> None:
    refused = site.run(written(site))
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "pool: 2 needs a cluster: run it with --ray" in refused.output


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_sites_are_not_left_out_silently_where_there_is_no_cluster(site: Site, options: list[str]) -> None:
    launch = {"command": [sys.executable, "-S", str(SERVER), "{port}", str(site.folder)], "timeout": HANGS}
    models = [{"name": name, "launch": launch | {"sites": 2 if name == "bob" else 1}} for name in MODELS]
    config = site.write(models=models)
    refused = site.run(config, *options)
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "models.bob.launch.sites: 2 needs a cluster: run it with --ray, or remove it" in refused.output
