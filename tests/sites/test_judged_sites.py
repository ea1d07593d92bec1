"""Runs whose models are served at sites, and whose answers a judge grades: it is asked from the head."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_runs import RunOutcome, Site, small_world
from near_sites import NearCluster
from test_sites import events, models, run_at

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import SiteLost
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving


@pytest.fixture(scope="module")
def judge_url() -> Iterator[str]:
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge((0.9, 0.2)))) as url:
        yield url


@pytest.fixture(autouse=True)
def places_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(site.folder))
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))


def judged(site: Site, url: str, name: str, **more: object) -> Path:
    grader = {"kind": "judge", "server": {"base_url": url, "model": "judge"}}
    trials = {"min": 4, "max": 8, "optimize": "cost"}
    sites = {"bob": 2} if name == "run" else None
    return site.write(name, models=models(site, sites), grader=grader, trials=trials, concurrency=2, **more)


@pytest.mark.slow
def test_a_judge_is_asked_from_the_head(site: Site, judge_url: str) -> None:
    plain = site.run(judged(site, judge_url, "plain"), "--run-dir", str(site.directory("plain")))
    assert plain.exit_code == ExitCode.SPENT, plain.output
    cluster = NearCluster([1, 0, 2])
    assert run_at(cluster, judged(site, judge_url, "run"), site) == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("plain"))
    assert len(events(site, SiteLost)) >= 2
    replies = [
        reply for _, near_site in cluster.placed for report in near_site.sent_reports for reply in report.replies
    ]
    assert replies and all(values[-2:] == (None, None) for reply in replies for values in reply.answers), (
        "no grade is there"
    )
