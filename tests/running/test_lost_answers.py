"""Answers that a server has generated, and whose run was killed before they came: their cost counts."""

from contextlib import closing
from dataclasses import replace

import pytest
from gated import GatedServer
from live_runs import Site, kill, small_world, trials_in, wait_until

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import AnswersLost, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.simulate.server import serving

BEFORE, FLYING = 8, 24
"""Trials that are stored when the server holds, and those that are in flight then."""


@pytest.mark.slow
def test_answers_lost_to_a_kill_are_reported_without_caps_too(site: Site) -> None:
    gated = GatedServer(small_world(), BEFORE)
    with serving(gated) as url:
        config = replace(site, base_url=url).write(trials={"min": 2, "max": 12}, stopping={"on_alarm": "never"})
        process = site.start(config, "--run-dir", str(site.directory()))
        wait_until(lambda: gated.waiting == FLYING and trials_in(site.directory()) == BEFORE, process)
        wait_until(lambda: in_flight(site) == FLYING, process)
        kill(process)
        gated.open()
        ended = site.run(config)
    assert ended.exit_code in (ExitCode.REACHED, ExitCode.SPENT), ended.output
    with closing(RunReader.open(site.directory())) as reader:
        tokens = sum(trial.cost.tokens for trial in reader.trials())
        lost = events_of_kind(reader.events(), AnswersLost)
    assert (in_flight(site), sum(event.answers for event in lost if event.killed)) == (0, FLYING)
    cost = site.results()["cost"]
    assert cost["tokens"] == tokens
    assert 0 < sum(event.tokens for event in lost) == sum(row["tokens"] for row in cost["beside"])
    assert "lost" not in {warning["kind"] for warning in site.results()["warnings"]}, "it is a cost, no warning"


def in_flight(site: Site) -> int:
    """Requests whose answers are stored as in flight."""
    with closing(RunReader.open(site.directory())) as reader:
        return len(reader.log.reserved()) + sum(reader.log.in_flight().values())
