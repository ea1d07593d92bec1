"""A run in a database asks its greedy answers in a run of its own, which is in the database, too, as are those that a
judge compares with."""

import shutil

import pytest
from gated import GatedServer
from live_runs import ENDED, MODELS, Found, Site, kill, small_world, wait_for_trials
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.record.results_file import read_results
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store.address import VARIABLE, LedgerAddress
from adaptive_eval.store.postgres.reading import list_runs

pytestmark = pytest.mark.postgres

GREEDY = {"prior_evidence": {"greedy": True}}
IN_ALL = len(MODELS) * 8


def test_greedy_answers_come_first_over_a_kill_and_are_a_run_that_is_read(
    site: Site, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(database))
    kept = {"store": {"ledger": str(database)}}
    plain = site.run(site.write("plain", **GREEDY), "--run-dir", str(site.directory("plain")))
    assert plain.exit_code in ENDED, plain.output
    greedy = site.directory("kept") / "greedy"
    with serving(GatedServer(small_world(), 7)) as slow_url:
        slow = [{"name": name, "base_url": slow_url} for name in MODELS]
        config = site.write("kept", **GREEDY, models=slow, concurrency=64, **kept)
        process = site.start(config, "--run-dir", str(site.directory("kept")))
        assert wait_for_trials(greedy, 5, process)
        kill(process)
    before = Found.of(greedy).outcomes
    assert 5 <= len(before) < IN_ALL
    config = site.write("kept", **GREEDY, **kept)
    done = site.run(config, "--run-dir", str(site.directory("kept")))
    assert done.exit_code in ENDED, done.output
    assert Found.of(site.directory("kept")) == Found.of(site.directory("plain"))
    assert before.items() <= Found.of(greedy).outcomes.items()
    assert {one.name for one in list_runs(database)} == {"kept", "kept.greedy"}
    results = read_results(site.directory("kept"))
    assert results is not None
    (row,) = results.cost.beside
    assert (row.what, row.trials) == ("greedy", IN_ALL)
    told = CliRunner().invoke(app, ["report", str(database.run_at("kept.greedy")), "--format", "md", "--output", "-"])
    assert told.exit_code == 0 and MODELS[0] in told.output, told.output
    shutil.rmtree(site.directory("kept"))
    assert site.run(config, "--run-dir", str(site.directory("kept"))).exit_code in ENDED, "it is all in the database"


def test_a_judge_compares_with_the_answers_of_a_run_that_is_in_the_database(
    site: Site, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(database))
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge())) as url:
        alone = {
            "models": [{"name": "bob", "base_url": url}],
            "trials": {"min": 2, "max": 2},
            "objective": {"kind": "threshold", "value": 0.5},
        }
        judge = {"kind": "judge", "server": {"base_url": url, "model": "judge"}}
        models = [{"name": name, "base_url": url} for name in ("ada", "cyd")]
        places = {"plain": site.directory("alone"), "later": database.run_at("kept").path}
        for name, store in (("alone", {}), ("kept", {"store": {"ledger": str(database)}})):
            ended = site.run(site.write(name, **alone, **store), "--run-dir", str(site.directory(name)))
            assert ended.exit_code in ENDED, ended.output
        for name, place in places.items():
            against = {"grader": {**judge, "against": {"run": str(place), "model": "bob"}}}
            done = site.run(site.write(name, **against, models=models), "--run-dir", str(site.directory(name)))
            assert done.exit_code in ENDED, done.output
        assert Found.of(site.directory("later")) == Found.of(site.directory("plain"))
