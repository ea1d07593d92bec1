"""A run in a database asks its opponent in a run of its own, which is in the database, too."""

import shutil

import pytest
from gated import GatedServer
from live_runs import ENDED, MODELS, Found, Site, kill, small_world, wait_for_trials
from opponents import IN_ALL, OPPONENT, OTHERS, opponent_of, results_of, settings
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store.address import VARIABLE, LedgerAddress
from adaptive_eval.store.postgres.reading import list_runs

pytestmark = pytest.mark.postgres


def test_it_is_asked_first_over_a_kill_and_others_can_be_compared_with_the_same_answers(
    site: Site, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(database))
    world, kept = small_world(), {"store": {"ledger": str(database)}}
    with serving(SimulatedServer(world, judge=SimulatedJudge())) as url:
        plain = site.run(site.write("plain", **settings(url)), "--run-dir", str(site.directory("plain")))
        assert plain.exit_code in ENDED, plain.output
        with serving(GatedServer(world, 7)) as slow_url:
            slow = [{"name": name, "base_url": slow_url if name == OPPONENT else url} for name in MODELS]
            process = site.start(
                site.write("kept", **settings(url, models=slow, concurrency=64), **kept),
                "--run-dir",
                str(site.directory("kept")),
            )
            assert wait_for_trials(opponent_of(site, "kept"), 5, process)
            kill(process)
        before = Found.of(opponent_of(site, "kept")).outcomes
        assert 5 <= len(before) < IN_ALL
        config = site.write("kept", **settings(url), **kept)
        done = site.run(config, "--run-dir", str(site.directory("kept")))
        assert done.exit_code in ENDED, done.output
        assert Found.of(site.directory("kept")) == Found.of(site.directory("plain"))
        assert before.items() <= Found.of(opponent_of(site, "kept")).outcomes.items()
        assert {one.name for one in list_runs(database)} == {"kept", "kept.opponent"}
        (row,) = results_of(site, "kept").cost.beside
        assert (row.what, row.model, row.trials) == ("opponent", OPPONENT, IN_ALL)
        address = str(database.run_at("kept.opponent"))
        told = CliRunner().invoke(app, ["report", address, "--format", "md", "--output", "-"])
        assert told.exit_code == 0 and OPPONENT in told.output, told.output
        shutil.rmtree(site.directory("kept"))
        others = [{"name": name, "base_url": url} for name in OTHERS]
        later = settings(url, {"run": address, "model": OPPONENT}, models=others)
        done = site.run(site.write("later", **later), "--run-dir", str(site.directory("later")))
        assert done.exit_code in ENDED, done.output
        assert Found.of(site.directory("later")) == Found.of(site.directory("plain"))
        assert site.run(config, "--run-dir", str(site.directory("kept"))).exit_code in ENDED, (
            "it is all in the database"
        )
