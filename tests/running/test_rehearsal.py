"""`--dry-run` and `check` say what would happen, and let nothing happen."""

from live_runs import MODELS, Site
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.errors import ExitCode
from adaptive_eval.store.database import DATABASE_FILE


def test_a_dry_run_says_what_would_run_and_at_most_cost(site: Site) -> None:
    config = site.write(budget={"tokens": 100_000})
    told = site.run(config, "--dry-run")
    assert told.exit_code == ExitCode.REACHED, told.stderr
    for name in MODELS:
        assert f"ok    {name}" in told.stdout
    assert "3 models on 8 questions, objective ranking" in told.stdout
    assert "at most   720 trials, 100k tokens" in told.stdout
    assert "what caps reserve" in told.stdout and "times as long as fixed N" in told.stdout
    assert f"lies in   {site.directory()} (begins)" in told.stdout
    assert not site.directory().exists()


def test_a_dry_run_finds_that_a_run_cannot_go_on_or_begin(site: Site) -> None:
    config = site.write(trials={"min": 2, "max": 2})
    site.run(config)
    stored = (site.directory() / DATABASE_FILE).read_bytes()
    told = site.run(config, "--dry-run")
    assert f"lies in   {site.directory()} (resumes, 48 trials are there)" in told.stdout
    told = site.run(config, "--dry-run", "--set", "sampling.temperature=0.1")
    assert told.exit_code == ExitCode.CONFIGURATION and "begun with other settings" in told.stderr
    told = site.run(config, "--dry-run", "--set", "prior_evidence.run=elsewhere")
    assert told.exit_code == ExitCode.CONFIGURATION and "elsewhere" in told.stderr
    assert (site.directory() / DATABASE_FILE).read_bytes() == stored


def test_a_dry_run_finds_what_is_not_there(site: Site) -> None:
    models = [*site.config()["models"], {"name": "eve", "base_url": site.base_url}]  # type: ignore[misc]
    told = site.run(site.write(models=models), "--dry-run")
    assert told.exit_code == ExitCode.ENDPOINTS
    assert "FAIL  eve" in told.stdout and "it does not serve 'eve'" in told.stdout


def test_check_names_every_server(site: Site) -> None:
    models = [
        {"name": "ada", "base_url": [site.base_url, "http://127.0.0.1:9/v1"]},
        {"name": "bob", "base_url": site.base_url},
    ]
    told = CliRunner().invoke(app, ["check", str(site.write(models=models))])
    assert told.exit_code == ExitCode.ENDPOINTS
    states = [line.split()[:2] for line in told.stdout.splitlines()]
    assert states == [["ok", "ada"], ["FAIL", "ada"], ["ok", "bob"]]
    assert CliRunner().invoke(app, ["check", str(site.write())]).exit_code == ExitCode.REACHED
