"""The database of a run is killed and started again while its models are served at sites, one of which is lost."""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from live_runs import MODELS, Found, Site
from near_sites import NearCluster
from patient_time import HANGS
from postgres_server import PostgresServer

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.core.types import Look
from adaptive_eval.running.execute import execute
from adaptive_eval.running.watching import Watcher, Watchers
from adaptive_eval.sites.opening import RunSites
from adaptive_eval.store.address import VARIABLE, LedgerAddress

pytestmark = pytest.mark.postgres

SERVER = Path(__file__).parents[1] / "running" / "small_server.py"
KILLED_AT = (1, 3)


class Killer(Watcher):
    """Kills the database when these looks have been taken, and starts it again."""

    def __init__(self, database: PostgresServer) -> None:
        self._database = database
        self.kills = 0

    def looked(self, looks: Sequence[Look]) -> None:
        for _ in {look.index for look in looks}.intersection(KILLED_AT):
            self._database.kill()
            self._database.start()
            self.kills += 1


def test_nothing_is_lost_or_counted_twice(
    site: Site, mortal: PostgresServer, mortal_database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(mortal_database))
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))
    command = [sys.executable, "-S", str(SERVER), "{port}", str(site.folder)]
    launch = {"command": command, "timeout": HANGS}
    alone, twice = ([{"name": name, "launch": one} for name in MODELS] for one in (launch, launch | {"sites": 2}))
    trials = {"min": 4, "max": 8, "favour": "answers"}
    plain = site.run(site.write("plain", models=alone, trials=trials), "--run-dir", str(site.directory("plain")))
    assert plain.exit_code == ExitCode.SPENT, plain.output
    store = {"ledger": str(mortal_database), "patience": "10m"}
    config = site.write("kept", models=twice, trials=trials, concurrency=2, store=store)
    killer, cluster = Killer(mortal), NearCluster([2])
    ended = asyncio.run(
        execute(
            prepare(load_config(config, ())),
            site.directory("kept"),
            Watchers(killer),
            lambda ended: None,
            sites=RunSites(cluster),
        )
    )
    assert (ended, killer.kills) == (ExitCode.SPENT, len(KILLED_AT))
    assert Found.of(site.directory("kept")) == Found.of(site.directory("plain"))
