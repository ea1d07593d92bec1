"""`adaptive-eval verify` on runs in which bytes were changed."""

import random
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import typed
from forging import forging
from live_runs import Site
from played import Played, prepared

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.exchange.export import EXPORTS
from adaptive_eval.report import trial_sums
from adaptive_eval.report.trial_sums import TrialSums
from adaptive_eval.report.verified import verify_run
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.packing import compress

FLIPS = [20, pytest.param(80, marks=pytest.mark.slow)]


def answers(directory: Path) -> object:
    """All texts in the database; None where they cannot be read."""
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        connection.text_factory = bytes
        try:
            return connection.execute("SELECT seq, text, reasoning FROM trials ORDER BY seq").fetchall()
        except sqlite3.Error:
            return None


def flip(path: Path, rng: random.Random) -> int:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return place


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> Site:
    site = Site.make(tmp_path_factory.mktemp("verified"), base_url)
    assert site.run(site.write()).exit_code == ExitCode.REACHED
    return site


@pytest.fixture
def copy(done: Site, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done.directory(), tmp_path / "copy"))


def test_a_run_is_intact(done: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    result = typed("verify", done.directory(), code=0)
    assert result.output.endswith("intact\n")
    assert "note" not in result.output
    once = replace(verify_run(done.directory()), looks=1)
    monkeypatch.setattr(sys.modules["adaptive_eval.cli.verify"], "verify_run", lambda run: once)
    assert " trials, 1 look, results" in typed("verify", done.directory()).output


@pytest.mark.parametrize("flips", FLIPS)
def test_every_flip_in_an_answer_is_noticed(done: Site, tmp_path: Path, flips: int) -> None:
    rng, noticed, before = random.Random(7), 0, answers(done.directory())
    for number in range(flips):
        run = Path(shutil.copytree(done.directory(), tmp_path / f"{number}"))
        place = flip(run / DATABASE_FILE, rng)
        result = typed("verify", run)
        noticed += result.exit_code != 0
        assert result.exit_code == ExitCode.FAILED or answers(run) == before, f"byte {place}: {result.output}"
        shutil.rmtree(run)
    assert noticed


@pytest.mark.parametrize("flips", FLIPS)
def test_every_flip_of_the_results_is_noticed(copy: Path, flips: int) -> None:
    rng, path = random.Random(8), copy / "results.json"
    data = path.read_bytes()
    for _ in range(flips):
        place = flip(path, rng)
        result = typed("verify", copy)
        harmless = place >= len(data) - 24 and "note: results.json has no checksum" in result.output
        assert result.exit_code == ExitCode.FAILED or harmless, (place, result.output)
        path.write_bytes(data)


def test_results_that_do_not_fit_what_is_stored_are_noticed(copy: Path) -> None:
    with closing(sqlite3.connect(copy / DATABASE_FILE)) as connection, connection:
        connection.execute("DELETE FROM trials WHERE seq = (SELECT max(seq) FROM trials)")
    (copy / "lock").unlink()
    assert "they belong to different runs, or trials are lost" in typed("verify", copy, code=ExitCode.FAILED).stderr
    with forging(copy) as database:
        database.execute("UPDATE cells SET look = look + 1")
    assert "is damaged" in typed("report", copy, "--format", "json").stderr
    assert ": its counts are missing\n" in typed("verify", copy, code=ExitCode.FAILED).stderr


def summed(folder: Path) -> tuple[Path, TrialSums]:
    """A run that has stored sums, and those sums."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial_sums, "STORED_EVERY", 40)
        run = Played(folder / "run", prepared(folder))
        while run.controller.finished is None:
            run.step(10)
    assert (stored := run.store.reader.sums()) is not None and stored.seq < run.store.last_seq
    sums = TrialSums.from_parts(stored.body, np.zeros((3, 6, 2), np.int32))
    run.close()
    assert sums is not None and len(sums.replicas) > 1
    return run.directory, sums


def changed(sums: TrialSums) -> Iterator[TrialSums]:
    """Sums with a number that is not that of the trials, though it could be."""
    first, *others = sums.replicas
    for name in ("retries", "prompt_tokens", "latency", "tokens", "usd", "gpu_seconds", "cached_tokens", "at"):
        yield sums._replace(replicas=[first._replace(**{name: getattr(first, name) + 3}), *others])
    yield sums._replace(replicas=[first._replace(last=first.last - 1), *others])
    yield sums._replace(counts=sums.counts[..., ::-1])


def test_sums_that_are_not_those_of_the_trials_are_found(tmp_path: Path) -> None:
    run, sums = summed(tmp_path)
    assert typed("verify", run).output.endswith("intact\n")
    bodies = [(b"".join(one.to_parts()), "than the trials") for one in changed(sums)]
    for body, fault in [*bodies, (b"[[], []]", "cannot be sums over trials of the run")]:
        with forging(run) as database:
            database.execute("UPDATE sums SET body = ?", (compress(body),))
        result = typed("verify", run)
        assert result.exit_code == ExitCode.FAILED and "damaged: sums: the row " in result.stderr
        assert fault in result.stderr and "in 1 place." in result.stderr, result.stderr
    with forging(run) as database:
        database.execute("UPDATE sums SET body = 'no zlib'")
    assert typed("verify", run).exit_code == ExitCode.FAILED


READING = [
    *("report RUN --format html --output OUT", "report RUN --format csv --output OUT", "monitor RUN --once"),
    *("compare RUN RUN", "replay RUN --output OUT", "label RUN --show", "rescore RUN", "regrade RUN --config run.yaml"),
    *(f"export RUN --format {form} --output OUT" for form in EXPORTS),
    *("run run.yaml --run-dir RUN", "plan run.yaml --pilot RUN --simulations 10"),
]


@pytest.mark.parametrize("line", READING)
def test_readers_report_a_changed_answer(done: Site, copy: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(done.folder)
    with closing(sqlite3.connect(copy / DATABASE_FILE)) as connection, connection:
        connection.execute("UPDATE trials SET category = 1 - category WHERE seq = (SELECT max(seq) FROM trials)")
    out = copy.with_name("out")
    result = typed(*line.replace("RUN", str(copy)).replace("OUT", str(out)).split())
    assert result.exit_code == ExitCode.FAILED and "damaged" in result.stderr, result.output
    assert not out.exists()
