"""`trials.draw` over HTTP: a large benchmark of which some questions are asked, killed, taken up and reported."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from live_runs import ENDED, FAST, Found, Site, kill, wait_for_trials
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.record.view import read_view
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import many_questions
from adaptive_eval.store import RunReader

WORLD = replace(many_questions(questions=300), latency=FAST)
MODELS = ("model-01", "model-04", "model-06")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SimulatedServer(WORLD)) as url:
        yield url


@pytest.fixture
def site(tmp_path: Path, url: str) -> Site:
    (tmp_path / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(WORLD)))
    return Site(tmp_path, url)


def write(site: Site, **changes: object) -> Path:
    settings: dict[str, object] = {
        "models": [{"name": name, "base_url": site.base_url} for name in MODELS],
        "questions": {"path": "questions.jsonl", "shuffle": True},
        "trials": {"min": 1, "max": 1, "draw": 50, "favour": "answers"},
    }
    return site.write("run", **(settings | changes))


@pytest.mark.slow
def test_a_run_asks_some_of_the_questions_and_is_the_same_after_a_kill(site: Site) -> None:
    straight, killed = site.folder / "straight", site.folder / "killed"
    ended = site.run(write(site), "--run-dir", str(straight))
    assert ended.exit_code in ENDED, ended.output
    assert "of 300 questions of each model; scores are for all" in ended.output
    process = site.start(write(site), "--run-dir", str(killed))
    wait_for_trials(killed, 200, process)
    kill(process)
    assert site.run(write(site), "--run-dir", str(killed)).exit_code in ENDED
    assert Found.of(killed) == Found.of(straight)
    assert CliRunner().invoke(app, ["verify", str(killed)]).exit_code == 0
    found = json.loads((straight / "results.json").read_text())
    assert found["decisions"]["trials"]["draw"] == 50
    with closing(RunReader.open(straight)) as reader:
        asked = [(one.model, one.question, one.trial) for one in reader.trials()]
    assert len(asked) == len(set(asked)) and all(trial == 0 for *_, trial in asked)
    shown = CliRunner().invoke(app, ["report", str(straight), "--format", "md", "-o", "-"])
    assert shown.exit_code == 0, shown.output
    assert "Questions were drawn at random, and scores estimate those on all questions" in shown.output
    assert "those that were not asked too" in shown.output and "trials a question" not in shown.output
    view = read_view(straight)
    assert view.results is not None
    names = [row.name for row in view.results.models]
    assert all((here is None) == (row == column) for row, line in enumerate(view.z) for column, here in enumerate(line))
    for pair in view.results.pairs:
        assert pair.worse is not None
        assert view.z[names.index(pair.better)][names.index(pair.worse)] == pytest.approx(pair.z)
    watched = CliRunner().invoke(app, ["monitor", str(straight), "--once"])
    assert "of 300 questions of each model" in watched.output
    compared = CliRunner().invoke(app, ["compare", str(straight), str(killed)])
    assert compared.exit_code == 0, compared.output
    assert "0 of 3 models have changed" in compared.output and "each by those that it was asked" in compared.output
    before = site.run(
        write(site, trials={"min": 1, "max": 1, "draw": 60, "favour": "answers"}), "--run-dir", str(straight)
    )
    assert before.exit_code == ExitCode.CONFIGURATION
    assert "trials.draw was 50" in before.output
