"""Whole runs against servers that sometimes refuse requests or reply absurdly."""

import time
from pathlib import Path

import pytest
from contrary_server import Asked, Reply, listening, write_config
from patient_time import HANGS
from stored_runs import events_in, stored_trials
from thoroughness import first_of
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.notes import ModelSetAside, ServersNoticed

RUNNER = CliRunner()
ALL = 48
Outcomes = dict[tuple[str, str, int], int | None]


def outcomes_of(run: Path) -> Outcomes:
    return {(trial.model, trial.question, trial.trial): trial.category for trial in stored_trials(run)}


def noticed(run: Path) -> set[tuple[str, str]]:
    return {(event.model, event.notice) for event in events_in(run, ServersNoticed)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    folder = tmp_path_factory.mktemp("undisturbed")
    with listening(lambda asked: None) as server:
        config = write_config(folder, server)
        result = RUNNER.invoke(app, ["run", str(config), "--display", "plain", "--run-dir", str(folder / "run")])
    assert result.exit_code == ExitCode.REACHED, result.output
    return outcomes_of(folder / "run")


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("status", first_of([401, 302], 1))
def test_stray_refusals_cost_nothing(tmp_path: Path, undisturbed: Outcomes, status: int) -> None:
    """The very first request of each model is refused, and one in six later."""

    def script(asked: Asked) -> Reply | None:
        return Reply(status, b"gateway says no") if asked.number % 6 == 0 and not asked.repeated else None

    with listening(script) as server:
        config, run = write_config(tmp_path, server), tmp_path / "run"
        result = RUNNER.invoke(app, ["run", str(config), "--display", "plain", "--run-dir", str(run)])
        assert result.exit_code == ExitCode.REACHED, result.output
        assert server.statuses.count(200) == ALL and 2 <= server.statuses.count(status) < ALL / 2
    assert outcomes_of(run) == undisturbed
    assert not noticed(run)


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("concurrency", first_of([4, 1], 1))
def test_a_revoked_key_sets_one_model_aside_and_a_resume_goes_on(
    tmp_path: Path, undisturbed: Outcomes, concurrency: int
) -> None:
    """It is believed after some rounds of refusals. Requests are sent one by one then, if replies are no slower than
    the pauses are short; at worst a round has as many as may be in flight."""
    revoked = [True]

    def script(asked: Asked) -> Reply | None:
        return Reply(403, b"revoked") if revoked[0] and asked.model == "bob" and asked.number >= 10 else None

    with listening(script) as server:
        config, run = write_config(tmp_path, server, concurrency=concurrency), tmp_path / "run"
        result = RUNNER.invoke(app, ["run", str(config), "--display", "plain", "--run-dir", str(run)])
        (aside,) = events_in(run, ModelSetAside)
        assert (aside.model, aside.reason) == ("bob", "HTTP 403: revoked (the key may not use this model)")
        assert result.exit_code != ExitCode.REACHED
        rounds = EndpointSettings().refusals
        assert rounds <= server.statuses.count(403) <= rounds * concurrency
        before = outcomes_of(run)
        assert before.items() <= undisturbed.items() and sum(key[0] == "ada" for key in before) == ALL / 2
        revoked[0] = False
        again = RUNNER.invoke(app, ["run", str(config), "--display", "plain", "--run-dir", str(run)])
        assert again.exit_code == ExitCode.REACHED, again.output
        assert server.statuses.count(200) == ALL
    assert outcomes_of(run) == undisturbed


@pytest.mark.parametrize("read_retry_after", first_of(["86400", "NaN", "-5", "Fri, 31 Dec 9999 23:59:59 GMT"], 1))
def test_absurd_waits_cost_a_moment(tmp_path: Path, undisturbed: Outcomes, read_retry_after: str) -> None:
    def script(asked: Asked) -> Reply | None:
        strange = asked.number % 7 == 2 and not asked.repeated
        return Reply(429, b"later", {"Retry-After": read_retry_after}) if strange else None

    with listening(script) as server:
        config, run = write_config(tmp_path, server), tmp_path / "run"
        began = time.monotonic()
        result = RUNNER.invoke(app, ["run", str(config), "--display", "plain", "--run-dir", str(run)])
        assert time.monotonic() - began < HANGS
        assert result.exit_code == ExitCode.REACHED, result.output
    assert outcomes_of(run) == undisturbed
    assert not noticed(run)
