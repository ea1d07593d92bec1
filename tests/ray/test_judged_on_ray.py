"""A run whose judge compares all models with one of them, at sites of a Ray cluster: the head is killed twice."""

import pytest
from live_runs import MODELS, Found, Site, kill, small_world, stored, wait_for_trials
from raylets import Raylets
from test_lives_on_ray import events, go_on, models, sites_left, written

from adaptive_eval.errors import ExitCode
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store import OpponentAnswered, SitePlaced

pytestmark = pytest.mark.ray
DEPTH, QUESTIONS = 2, 8


def test_a_head_that_was_killed_while_the_opponent_answers_and_after_it_loses_nothing(
    site: Site, raylets: Raylets
) -> None:
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge((0.9, 0.2)))) as url:
        against = {"model": "bob", "trials": DEPTH}
        grader = {"kind": "judge", "server": {"base_url": url, "model": "judge"}, "against": against}
        plain = site.run(written(site, models=models(site), grader=grader), "--run-dir", str(site.directory("plain")))
        assert plain.exit_code == ExitCode.SPENT, plain.output
        config = written(site, models=models(site, "held"), grader=grader, concurrency=16)
        words = (config, "--run-dir", str(site.directory()), "--ray", raylets.address)
        process = site.start(*words)
        assert wait_for_trials(site.directory() / "opponent", 10, process), process.communicate()
        kill(process)
        assert [name.split("/")[1] for name in sites_left(raylets)] == ["bob"]
        process = site.start(*words)
        go_on(site)
        assert wait_for_trials(site.directory(), 10, process), process.communicate()
        kill(process)
        ended = site.run(config, "--ray", raylets.address)
    assert ended.exit_code == ExitCode.SPENT, ended.output
    assert Found.of(site.directory()) == Found.of(site.directory("plain"))
    assert Found.of(site.directory() / "opponent") == Found.of(site.directory("plain") / "opponent")
    (answered,) = events(site, OpponentAnswered)
    assert answered.trials == DEPTH * QUESTIONS
    assert all(one.signals["verdict"] in ("better", "worse", "tie") for one in stored(site))
    assert {one.model for one in events(site, SitePlaced)} == set(MODELS) - {"bob"} and not sites_left(raylets)
