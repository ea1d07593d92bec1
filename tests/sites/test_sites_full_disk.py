"""The disk for the texts of answers is full in the midst of a run with sites: nothing is lost, and they move later."""

import asyncio
from pathlib import Path

import pytest
from full_disk import small_disk, texts_wait_for_room
from live_runs import Site
from near_sites import NearCluster

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.running.execute import execute
from adaptive_eval.running.watching import Watchers
from adaptive_eval.sites.opening import RunSites


@pytest.mark.slow
def test_texts_stay_in_the_database_and_move_when_there_is_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = iter([NearCluster([2]), NearCluster()])

    def run(config: Path) -> ExitCode:
        prepared, sites = prepare(load_config(config, ())), RunSites(next(clusters))
        return asyncio.run(execute(prepared, site.directory(), Watchers(), lambda ended: None, sites=sites))

    with small_disk(site, monkeypatch) as disk:
        texts_wait_for_room(site, disk, run)
