"""A disk for the texts of answers that is full in the midst of a run with sites, whoever places these."""

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from live_runs import ENDED, MODELS, Found, Site
from patient_time import HANGS

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.record.verified import verify_run
from adaptive_eval.store import AnswersKept, RunReader, events_of_kind
from adaptive_eval.store.database import DATABASE_FILE
from adaptive_eval.store.segments import moving

SERVER = Path(__file__).parent / "running" / "small_server.py"


@contextmanager
def small_disk(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system that has room for some segments, each of which is written as soon as there are some texts."""
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))
    monkeypatch.setattr(moving, "SEGMENT_TRIALS", 16)
    monkeypatch.setattr(moving, "AGAIN_SECONDS", 0.0)
    place = site.folder / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", place], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    monkeypatch.setenv("ADAPTIVE_EVAL_ANSWERS", place.as_uri())
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def texts_wait_for_room(site: Site, disk: Path, run: Callable[[Path], int]) -> None:
    """Texts stay in the database, move when there is room, and none is lost; `run` has models served at sites."""
    command = [sys.executable, "-S", str(SERVER), "{port}", "wordy", str(site.folder)]
    launch = {"command": command, "timeout": HANGS, "resources": {"CPU": 1}}

    def written(most: int, **more: object) -> Path:
        trials = {"min": 8, "max": most, "favour": "answers"}
        served = [{"name": name, "launch": launch} for name in MODELS]
        return site.write(trials=trials, models=served, concurrency=2, servers={"sites": {"silence": HANGS}}, **more)

    assert site.run(written(8), "--run-dir", str(site.directory("home"))).exit_code == ExitCode.SPENT
    kept = {"store": {"answers": disk.as_uri()}}
    assert run(written(8, **kept)) == ExitCode.SPENT
    assert Found.of(site.directory()) == Found.of(site.directory("home"))
    before = _texts(site.directory())
    assert len(before) == 8 * 8 * len(MODELS) and all(text.endswith(".") for text in before.values())
    assert list(disk.rglob("*.parquet")), "there was room for some"
    assert _in_database(site.directory()) > 0, "and not for all"
    with closing(RunReader.open(site.directory())) as reader:
        assert any("the disk is full" in one.reason for one in events_of_kind(reader.events(), AnswersKept))
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    assert run(written(12, **kept)) in ENDED
    after = _texts(site.directory())
    assert before.items() <= after.items()
    assert _in_database(site.directory()) == 0 and verify_run(site.directory()).damages == ()


def _texts(directory: Path) -> dict[tuple[str, str, int], str]:
    with closing(RunReader.open(directory)) as reader:
        return {(one.model, one.question, one.trial): one.answer.text for one in reader.trials()}


def _in_database(directory: Path) -> int:
    """Trials whose texts are there."""
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        ((number,),) = connection.execute("SELECT count(*) FROM trials WHERE text IS NOT NULL")
    return int(number)
