"""Servers of settled models that the run has started are stopped while others go on."""

import tempfile

import pytest
from live_runs import MODELS, Site, kill, wait_until
from stored_runs import events_in
from test_launched_run import launched, none_left, printed, servers
from test_server_time import held_of

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import ModelSettled, ServerLaunched, ServerReleased

IN_STEP = {"trials": {"min": 4, "max": 40, "optimize": "cost"}}
"""One look at a time: where several are taken at once, a model may be settled by no look but the last."""
LAST = MODELS[-1]
"""Far from the others, which are closer together."""


@pytest.fixture(autouse=True)
def places_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(site.folder))
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))


@pytest.mark.slow
def test_the_server_of_a_settled_model_goes_while_others_go_on_over_a_kill_and_a_resume(site: Site) -> None:
    """One model is settled after 80 answers; the others need many more, and give a hundred before the kill."""
    config = site.write(**IN_STEP, models=launched(site, "held=100"), concurrency=64)
    process = site.start(config, "--run-dir", str(site.directory()))
    printed(process, f"{LAST} is done: no more requests. Its server is stopped.")
    wait_until(lambda: events_in(site.directory(), ServerReleased), process)
    assert len(servers(site)) == 4, "two servers and their keepers go on"
    kill(process)
    assert none_left(site)
    (site.folder / "go").touch()
    held = held_of(site.directory())[LAST]
    before = len(events_in(site.directory(), ServerLaunched))
    ended = site.run(config)
    assert ended.exit_code in (ExitCode.SPENT, ExitCode.REACHED), ended.output
    assert [event.model for event in events_in(site.directory(), ModelSettled)].count(LAST) == 1
    assert [event.model for event in events_in(site.directory(), ServerReleased)].count(LAST) == 1
    again = events_in(site.directory(), ServerLaunched)[before:]
    assert {event.model for event in again} <= set(MODELS[:-1]), "it is not started again"
    assert held.seconds > 0.0 and held_of(site.directory())[LAST] == held
