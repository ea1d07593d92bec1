"""Greedy answers that come first and count as R0: a whole life of them, over HTTP."""

import shutil
import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from live_runs import ENDED, MODELS, Found, Site, kill, small_world, stored, trials_in, wait_for_trials
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.record.restore import open_run
from adaptive_eval.record.results import Results
from adaptive_eval.record.results_file import read_results
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store import PriorTaken, RunReader, events_of_kind
from adaptive_eval.store.database import DATABASE_FILE

FIRST: Mapping[str, object] = {"prior_evidence": {"greedy": True}, "trials": {"min": 3, "max": 8}}
SURE = {"rule": {"use": "published", "options": {"threshold": 50}}, "prior": "uniform"}
"""What no small run decides."""
IN_ALL = 3 * 8
"""Greedy answers of the small world."""


def greedy_of(site: Site, name: str = "run") -> Path:
    return site.directory(name) / "greedy"


def results_of(site: Site, name: str = "run") -> Results:
    results = read_results(site.directory(name))
    assert results is not None
    return results


def taken(site: Site, name: str = "run") -> list[PriorTaken]:
    with closing(RunReader.open(site.directory(name))) as reader:
        return events_of_kind(reader.events(), PriorTaken)


def used(directory: Path) -> tuple[int, int]:
    """Trials and tokens, by SQL."""
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as database:
        trials, tokens = database.execute("SELECT count(*), total(tokens) FROM trials").fetchone()
        return int(trials), int(tokens)


def test_they_are_what_a_run_of_ones_own_at_temperature_0_would_have_given(site: Site) -> None:
    ended = site.run(site.write(**FIRST))
    assert ended.exit_code in ENDED, ended.stderr
    assert "asking 3 models for a greedy answer to each of 8 questions first" in ended.stdout
    assert "24 greedy answers count as R0" in ended.stdout and "greedy answers, which came first (R0)" in ended.stdout
    by_hand = {"trials": {"min": 1, "max": 1}, "sampling": {"temperature": 0, "max_tokens": 2000}}
    assert site.run(site.write("hand", **by_hand), "--run-dir", str(site.directory("hand"))).exit_code in ENDED
    earlier = {**FIRST, "prior_evidence": {"run": str(site.directory("hand"))}}
    assert site.run(site.write("earlier", **earlier), "--run-dir", str(site.directory("earlier"))).exit_code in ENDED
    assert Found.of(greedy_of(site)).outcomes == Found.of(site.directory("hand")).outcomes
    assert Found.of(site.directory()) == Found.of(site.directory("earlier"))
    with closing(RunReader.open(greedy_of(site))) as reader:
        sampling = [model["sampling"] for model in reader.header().models.values()]
    assert sampling == [{"temperature": 0.0, "max_tokens": 2000}] * 3


def test_they_are_counted_and_needed_once(site: Site) -> None:
    config = site.write(**FIRST)
    assert site.run(config).exit_code in ENDED
    results, found = results_of(site), Found.of(site.directory())
    (row,) = results.cost.beside
    assert (row.what, row.trials, row.tokens) == ("greedy", *used(greedy_of(site)))
    assert [model.prior_depth for model in results.models] == [1.0, 1.0, 1.0]
    assert all(model.score_without_prior is not None for model in results.models)
    (warning,) = [one.text for one in results.warnings if one.kind == "prior"]
    assert warning.startswith("one greedy answer to each question counts in the scores")
    report = CliRunner().invoke(app, ["report", str(site.directory()), "--format", "md", "--output", "-"]).stdout
    assert "| greedy answers, which came first (R0) " in report and "rank without R0" in report
    shutil.rmtree(greedy_of(site))
    assert site.run(config).exit_code in ENDED
    assert not greedy_of(site).exists() and Found.of(site.directory()) == found
    with open_run(site.directory()) as read:
        again = read.recompute_results(running=False)
    assert again is not None and again.cost.beside == results.cost.beside and again.models == results.models


@pytest.mark.slow
def test_a_model_that_joins_later_is_asked_then(site: Site) -> None:
    models = [{"name": name, "base_url": site.base_url} for name in MODELS]
    assert site.run(site.write(**FIRST, models=models[:2])).exit_code in ENDED
    assert site.run(site.write(**FIRST, models=models)).exit_code in ENDED
    before, after = taken(site)
    assert (before.trials, after.trials) == (16, 24) and after.outcomes.keys() == set(MODELS)
    whole = site.write("whole", **FIRST, models=models)
    assert site.run(whole, "--run-dir", str(site.directory("whole"))).exit_code in ENDED
    assert taken(site, "whole")[-1].outcomes == after.outcomes
    (row,) = results_of(site).cost.beside
    assert (row.trials, row.tokens) == used(greedy_of(site))


def one_slow(site: Site, slow_url: str) -> list[dict[str, str]]:
    """The models, of which the last does not answer while a test goes on."""
    return [{"name": name, "base_url": slow_url if name == MODELS[-1] else site.base_url} for name in MODELS]


@pytest.mark.slow
def test_a_kill_on_the_way_loses_none(site: Site, slow_url: str) -> None:
    process = site.start(site.write(**FIRST, models=one_slow(site, slow_url)))
    assert wait_for_trials(greedy_of(site), 5, process)
    kill(process)
    before = Found.of(greedy_of(site)).outcomes
    assert 5 <= len(before) < IN_ALL and not trials_in(site.directory())
    config = site.write(**FIRST)
    assert site.run(config).exit_code in ENDED
    assert before.items() <= Found.of(greedy_of(site)).outcomes.items()
    whole = site.write("whole", **FIRST)
    assert site.run(whole, "--run-dir", str(site.directory("whole"))).exit_code in ENDED
    assert Found.of(site.directory()) == Found.of(site.directory("whole"))


@pytest.mark.slow
def test_who_stops_meanwhile_has_stopped_the_run(site: Site, slow_url: str) -> None:
    process = site.start(site.write(**FIRST, models=one_slow(site, slow_url)))
    assert wait_for_trials(greedy_of(site), 5, process)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while "interrupt again to stop at once" not in (line := process.stdout.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    said, problems = process.communicate()
    assert process.returncode == ExitCode.STOPPED, problems
    assert "Stopped. Every answer that was graded is stored." in said and not trials_in(site.directory())
    told = CliRunner().invoke(app, ["report", str(site.directory()), "--format", "md", "--output", "-"])
    assert told.exit_code == 0, told.output
    assert site.run(site.write(**FIRST)).exit_code in ENDED
    assert len(Found.of(greedy_of(site)).outcomes) == IN_ALL


def test_the_caps_are_on_both_together(site: Site) -> None:
    small = site.write(**FIRST, budget={"trials": IN_ALL - 1})
    ended = site.run(small)
    assert ended.exit_code == ExitCode.SPENT and "No answers were requested" in ended.stdout
    assert not trials_in(greedy_of(site)) and not trials_in(site.directory())
    cap = IN_ALL + 3 * 8 * 5
    sure = {"stopping": SURE, "trials": {"min": 4, "max": 60}}
    assert site.run(site.write(**{**FIRST, **sure}, budget={"trials": cap})).exit_code == ExitCode.SPENT
    assert trials_in(greedy_of(site)) == IN_ALL and cap - IN_ALL - 24 < trials_in(site.directory()) <= cap - IN_ALL
    asked = trials_in(site.directory())
    models = [{"name": name, "base_url": site.base_url} for name in (*MODELS, "ada2")]
    models[-1]["model"] = "ada"
    more = site.write(**{**FIRST, **sure}, models=models, budget={"trials": IN_ALL + asked + 7})
    assert site.run(more).exit_code == ExitCode.SPENT
    assert (trials_in(greedy_of(site)), trials_in(site.directory())) == (IN_ALL, asked)


@pytest.mark.slow
def test_with_a_judge_under_a_cap_on_tokens(site: Site) -> None:
    cap = 800_000
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge())) as url:
        grader = {"kind": "judge", "server": {"base_url": url, "model": "judge"}, "longest": 4096}
        alike = [{"name": name, "model": "ada", "base_url": url} for name in ("one", "two")]
        capped = {**FIRST, "models": alike, "grader": grader, "trials": {"min": 3, "max": 80}, "stopping": SURE}
        assert site.run(site.write(**capped, budget={"tokens": cap})).exit_code == ExitCode.SPENT
    results = results_of(site)
    assert results.run.reason == "budget"
    spent = used(greedy_of(site))[1] + used(site.directory())[1]
    assert results.cost.in_all("tokens") == spent and 0.3 * cap < spent <= cap


@pytest.mark.slow
def test_a_model_that_cannot_be_had_now_is_asked_at_a_later_start(site: Site) -> None:
    models = [{"name": name, "base_url": site.base_url} for name in MODELS]
    away = [*models[:2], {"name": "cyd", "base_url": "http://127.0.0.1:9/v1"}]
    quick = {"concurrency": {"in_flight": 8, "patience": 0, "attempts": 1}}
    ended = site.run(site.write(**FIRST, **quick, models=away))
    assert ended.exit_code in {ExitCode.SPENT, ExitCode.ENDPOINTS}, ended.stderr
    assert taken(site)[-1].outcomes.keys() == {"ada", "bob"} and stored(site)
    assert site.run(site.write(**FIRST, **quick, models=models)).exit_code in ENDED
    assert taken(site)[-1].outcomes.keys() == set(MODELS)
    assert [row.prior_depth for row in results_of(site).models] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ({"greedy": True, "run": "runs/older"}, {}, "cannot be combined with `run`"),
        ({"discount": 0.5}, {}, "must be true where no `run` is given"),
        ({"greedy": True, "depth": 1}, {}, "is for outcomes of an earlier run"),
        ({"greedy": True, "models": {"ada": "bob"}}, {}, "is for outcomes of an earlier run"),
        ({"greedy": True}, {"rubric": {"fit": "opening", "categories": [{"name": "no", "weight": 0},
          {"name": "short", "weight": 1, "when": {"completion_tokens": {"at_most": "p33"}}}]}},
         "may not be `opening` with greedy answers"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_them_is_refused(
    site: Site, section: dict[str, object], changes: dict[str, object], message: str
) -> None:
    ended = site.run(site.write(prior_evidence=section, **changes))
    assert ended.exit_code == ExitCode.CONFIGURATION and message in ended.stderr


def test_a_run_with_r0_takes_no_other_grader(site: Site) -> None:
    """R0 has no answers that could be graded anew beside the run's."""
    assert site.run(site.write(**FIRST)).exit_code in ENDED
    other = site.write(**{**FIRST, "grader": "math"})
    told = CliRunner().invoke(app, ["regrade", str(site.directory()), "--config", str(other)])
    assert told.exit_code == ExitCode.FAILED and "as R0, which were graded as the run is graded now" in told.output
