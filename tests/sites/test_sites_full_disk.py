"""The disk for the texts of answers is full in the midst of a run with sites: nothing is lost, and they move later."""

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from live_runs import ENDED, MODELS, Found, Site
from near_sites import NearCluster
from patient_time import HANGS

from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.errors import ExitCode
from adaptive_eval.record.verified import verify_run
from adaptive_eval.running.execute import execute
from adaptive_eval.running.watching import Watchers
from adaptive_eval.sites.opening import RunSites
from adaptive_eval.store import AnswersKept, RunReader, events_of_kind, moving
from adaptive_eval.store.database import DATABASE_FILE

SERVER = Path(__file__).parents[1] / "running" / "small_server.py"


@pytest.fixture
def disk(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system that has room for some segments, each of which is written as soon as there are some texts."""
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))
    monkeypatch.setattr(moving, "SEGMENT_TRIALS", 16)
    monkeypatch.setattr(moving, "AGAIN_SECONDS", 0.0)
    place = site.folder / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", place], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def run_at(cluster: NearCluster, config: Path, directory: Path) -> ExitCode:
    prepared = prepare(load_config(config, ()))
    return asyncio.run(execute(prepared, directory, Watchers(), lambda ended: None, sites=RunSites(cluster)))


def texts(directory: Path) -> dict[tuple[str, str, int], str]:
    with closing(RunReader.open(directory)) as reader:
        return {(one.model, one.question, one.trial): one.answer.text for one in reader.trials()}


def in_database(directory: Path) -> int:
    """Trials whose texts are there."""
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        ((number,),) = connection.execute("SELECT count(*) FROM trials WHERE text IS NOT NULL")
    return int(number)


@pytest.mark.slow
def test_texts_stay_in_the_database_and_move_when_there_is_room(
    site: Site, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-S", str(SERVER), "{port}", "wordy", str(site.folder)]
    served = [{"name": name, "launch": {"command": command, "timeout": HANGS}} for name in MODELS]
    monkeypatch.setenv("ADAPTIVE_EVAL_ANSWERS", disk.as_uri())
    common: dict[str, object] = {"models": served, "concurrency": 2}

    def written(most: int, **more: object) -> Path:
        return site.write(trials={"min": 8, "max": most, "favour": "balanced"}, **common, **more)

    assert site.run(written(8), "--run-dir", str(site.directory("home"))).exit_code == ExitCode.SPENT
    kept = {"store": {"answers": disk.as_uri()}}
    assert run_at(NearCluster([2]), written(8, **kept), site.directory()) == ExitCode.SPENT
    assert Found.of(site.directory()) == Found.of(site.directory("home"))
    before = texts(site.directory())
    assert len(before) == 8 * 8 * len(MODELS) and all(text.endswith(".") for text in before.values())
    assert list(disk.rglob("*.parquet")), "there was room for some"
    assert in_database(site.directory()) > 0, "and not for all"
    with closing(RunReader.open(site.directory())) as reader:
        assert any("the disk is full" in one.reason for one in events_of_kind(reader.events(), AnswersKept))
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    assert run_at(NearCluster(), written(12, **kept), site.directory()) in ENDED
    after = texts(site.directory())
    assert before.items() <= after.items()
    assert in_database(site.directory()) == 0 and verify_run(site.directory()).damages == ()
