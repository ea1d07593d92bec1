"""A run on a Ray cluster whose answers a judge grades, and whose head is killed while both are asked."""

import pytest
from gated import GatedServer
from live_runs import MODELS, RunOutcome, Site, kill, small_world, stored, wait_until
from raylets import Raylets
from test_lives_on_ray import begun, events, go_on, models, require_nothing_left, written

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import SiteLost, SitePlaced
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import serving

pytestmark = pytest.mark.ray

VERDICTS, WAITING = 12, 8
"""Given before the head is killed, and asked for at a time."""
IN_FLIGHT = 16
"""Of each model."""


def test_a_head_that_was_killed_buys_no_answer_and_no_verdict_twice_but_those_in_flight(
    site: Site, raylets: Raylets
) -> None:
    judge = GatedServer(small_world(), VERDICTS, judge=SimulatedJudge((0.9, 0.2)))
    with serving(judge) as url:
        server = {"base_url": url, "model": "judge"}
        grader = {"kind": "judge", "server": server, "concurrency": {"in_flight": WAITING}}
        config = written(site, models=models(site, "held", "diary"), concurrency=IN_FLIGHT, grader=grader)
        process = begun(site, config, raylets)
        wait_until(lambda: judge.counts["answered"] == VERDICTS + WAITING, process)
        kill(process)
        before = events(site, SitePlaced)
        judge.open()
        go_on(site)
        ended = site.run(config, "--ray", raylets.address)
        assert ended.exit_code == ExitCode.SPENT, ended.output
        trials, verdicts = len(stored(site)), judge.counts["answered"]
        plain = written(site, models=models(site), grader=grader)
        assert site.run(plain, "--run-dir", str(site.directory("plain"))).exit_code == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("plain"))
    after = events(site, SitePlaced)[len(before) :]
    assert {event.model for event in after} == set(MODELS) and all(event.is_reused for event in after)
    assert {event.pid for event in after} <= {event.pid for event in before} and not events(site, SiteLost)
    assert verdicts == trials + WAITING
    answers = len((site.folder / "diary.jsonl").read_text().splitlines())
    assert trials <= answers <= trials + IN_FLIGHT * len(MODELS)
    require_nothing_left(raylets)
