"""The database of a run is killed and started again while its models are served at sites of a Ray cluster."""

from collections.abc import Iterator

import pytest
from live_runs import MODELS, Found, Site, kill
from postgres_server import PostgresServer
from raylets import Raylets
from test_lives_on_ray import begun, events, go_on, models, sites_left, written

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.store import ServerLaunched, SiteLost, SitePlaced
from adaptive_eval.store.address import VARIABLE, LedgerAddress

pytestmark = pytest.mark.ray


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    monkeypatch.setenv("PGUSER", "tester")
    server = PostgresServer()
    yield server
    server.close()


def test_a_database_that_is_killed_under_sites_and_then_the_head_lose_nothing(
    site: Site, raylets: Raylets, database: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE DATABASE runs")
    address = LedgerAddress.parse(database.url("runs"))
    monkeypatch.setenv(VARIABLE, str(address))
    ended = site.run(written(site, models=models(site)), "--run-dir", str(site.directory("home")))
    assert ended.exit_code == ExitCode.SPENT, ended.output
    kept = {"ledger": str(address), "patience": "10m"}
    config = written(site, models=models(site, "held"), concurrency=16, store=kept)
    process = begun(site, config, raylets)
    database.kill()
    database.start()
    assert len(sites_left(raylets)) == len(MODELS), "its sites have nothing to do with it"
    kill(process)
    database.kill()
    database.start()
    go_on(site)
    ended = site.run(config, "--ray", raylets.address)
    assert ended.exit_code == ExitCode.SPENT, ended.output
    assert Found.of(site.directory()) == Found.of(site.directory("home"))
    placed = events(site, SitePlaced)
    assert {one.model for one in placed if one.found} == set(MODELS) and not events(site, SiteLost)
    assert all(one.seconds == 0.0 for one in events(site, ServerLaunched)[-len(MODELS) :]), "models stayed loaded"
    assert not sites_left(raylets)
