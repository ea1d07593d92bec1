"""A run whose answers leave the ledger decides the same, and whatever is done with a run is done with that one too."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from live_runs import ENDED, EndedRuns, Found, Site, kill, wait_for_trials
from typer.testing import CliRunner
from warm_start import WarmProcess

from adaptive_eval.cli import app
from adaptive_eval.store import RunReader
from adaptive_eval.store.integrity import Integrity
from adaptive_eval.store.segments import moving

SEGMENTS = {"answers": "segments"}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "SEGMENT_TRIALS", 50)
    monkeypatch.setattr(moving, "SHORTEST_MOVED", 1)


def texts(directory: Path) -> dict[tuple[str, str, int], str]:
    with closing(RunReader.open(directory)) as reader:
        return {(one.model, one.question, one.trial): one.answer.text for one in reader.trials()}


def left_in_ledger(directory: Path) -> int:
    with closing(RunReader.open(directory)) as reader:
        return int(reader._database.connection.execute("SELECT count(*) FROM trials WHERE text <> ''").fetchone()[0])


def called(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, (words, done.output)
    return done.output


def test_it_finds_what_any_run_finds(site: Site, ended_runs: EndedRuns) -> None:
    short = {"trials": {"min": 4, "max": 6}}
    plain, kept = site.directory("plain"), site.directory("kept")
    ended_runs.copy(site, plain, **short)
    assert site.run(site.write("kept", store=SEGMENTS, **short), "--run-dir", str(kept)).exit_code in ENDED
    assert Found.of(kept) == Found.of(plain)
    assert texts(kept) == texts(plain) and left_in_ledger(kept) == 0


@pytest.mark.slow
def test_its_life_is_that_of_any_run(site: Site, ended_runs: EndedRuns) -> None:
    plain = ended_runs.copy(site, site.directory("plain"))
    kept = site.directory("kept")
    begun = site.run(site.write("kept", store=SEGMENTS, trials={"min": 4, "max": 8}), "--run-dir", str(kept))
    assert begun.exit_code in ENDED, begun.output
    assert site.run(site.write("kept", store=SEGMENTS), "--run-dir", str(kept)).exit_code in ENDED
    assert left_in_ledger(kept) == 0 and Integrity.check(kept).damages == ()
    assert texts(kept).items() <= texts(plain).items() or texts(plain).items() <= texts(kept).items()
    called("verify", str(kept))
    called("report", str(kept))
    table = site.folder / "trials.jsonl"
    called("export", str(kept), "--format", "jsonl", "--output", str(table))
    said = [json.loads(line)["text"] for line in table.read_text().splitlines()]
    assert sorted(said) == sorted(texts(kept).values())
    before = Found.of(kept).outcomes
    called("regrade", str(kept))
    assert Found.of(kept).outcomes == before
    (path, *_) = sorted((kept / "answers").iterdir())
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    done = CliRunner().invoke(app, ["verify", str(kept)])
    assert done.exit_code == 1 and "damaged: segments 1" in done.output
    path.unlink()
    done = CliRunner().invoke(app, ["export", str(kept), "--format", "jsonl", "--output", str(table), "--force"])
    assert done.exit_code != 0 and path.name in done.output and "Traceback" not in done.output


@pytest.mark.slow
def test_kills_lose_nothing_and_change_nothing(site: Site, ended_runs: EndedRuns) -> None:
    plain, config = ended_runs.copy(site, site.directory("plain")), site.write("kept", store=SEGMENTS)
    script = site.folder / "small_segments.py"
    script.write_text(
        "from adaptive_eval.cli import main\nfrom adaptive_eval.store.segments import moving\n"
        "moving.SEGMENT_TRIALS, moving.SHORTEST_MOVED = 20, 1\nmain()\n"
    )
    kept = site.directory("kept")
    for goal in (30, 90, 150):
        command = ["run", str(config), "--run-dir", str(kept), "--display", "none"]
        process = WarmProcess(command, site.folder, script)
        site.processes.append(process)
        wait_for_trials(kept, goal, process)
        kill(process)
    assert site.run(config, "--run-dir", str(kept)).exit_code in ENDED
    assert Found.of(kept) == Found.of(plain)
    assert texts(kept) == texts(plain) and left_in_ledger(kept) == 0
    assert Integrity.check(kept).damages == ()
