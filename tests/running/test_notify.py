"""The command that is called at the end of a run: a real command, and its failures."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from live_runs import Site
from stored_runs import events_in

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.config.load import load_config
from adaptive_eval.notes import RunStopped

Json = dict[str, Any]

COMMAND = """#!{python}
import json, os, sys
with open("told.json", "a") as file:
    file.write(json.dumps({{"text": sys.stdin.read(), "names": sorted(os.environ)}}) + "\\n")
"""


@pytest.fixture
def program(site: Site) -> list[str]:
    """A command that records how it is called."""
    path = site.folder / "tell"
    path.write_text(COMMAND.format(python=sys.executable))
    path.chmod(0o700)
    return ["./tell"]


def notifications(folder: Path) -> list[Json]:
    path = folder / "told.json"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_command_is_called_at_the_end_without_keys(
    site: Site, program: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "one-that-nobody-else-may-see")
    ended = site.run(site.write(notify=program))
    assert ended.exit_code == ExitCode.REACHED
    (message,) = notifications(site.folder)
    line, remainder = message["text"].split("\n")
    assert line.startswith("run: Finished: ") and "ada is best" in line and not remainder
    assert "PATH" in message["names"] and "SOME_API_KEY" not in message["names"]


@pytest.mark.usefixtures("short_pauses")
def test_the_command_is_told_of_an_error_that_ends_a_run(site: Site, program: list[str]) -> None:
    models = [{"name": name, "model": f"no-{name}", "base_url": site.base_url} for name in ("ada", "bob")]
    assert site.run(site.write(models=models, notify=program)).exit_code == ExitCode.ENDPOINTS
    (message,) = notifications(site.folder)
    assert message["text"].startswith("run: Stopped by an error: ") and message["text"].count("\n") == 1


def test_the_text_of_an_error_that_nobody_foresaw_is_stored_and_told_nowhere(
    site: Site, program: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(plan: object) -> None:
        raise RuntimeError(KEY)

    monkeypatch.setattr("adaptive_eval.running.start.solve_boundary", fail)
    assert site.run(site.write(notify=program)).exit_code != 0
    (message,) = notifications(site.folder)
    (stopped,) = events_in(site.directory(), RunStopped)
    assert stopped.reason == "an unexpected error (RuntimeError)"
    assert "an unexpected error (RuntimeError)" in message["text"] and KEY not in message["text"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["no-such-program", "https://example.org/hook"], "could not be run"),
        ([sys.executable, "-c", "raise SystemExit(3)", "https://example.org/hook"], "exit code 3"),
    ],
)
def test_a_command_that_fails_is_a_warning(site: Site, command: list[str], message: str) -> None:
    result = site.run(site.write(notify=command, trials={"min": 2, "max": 2}))
    assert result.exit_code in (ExitCode.REACHED, ExitCode.SPENT) and "warning: notify: " in result.stderr
    assert message in result.stderr and "example.org" not in result.stderr


KEY = "Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8"


@pytest.mark.parametrize(
    ("notify", "message"),
    [
        ([], "notify must not be empty"),
        (["curl", "--token=abc"], "has a secret"),
        (["curl", "-H", "Authorization: Bearer abc"], "has a secret"),
        (["curl", "https://me:word@a.com/b"], "has a secret"),
        (["curl", f"https://hooks.a.com/services/T0/{KEY}"], "let the command read it from a file"),
        (["curl", f"hooks.a.com/services/T0/{KEY}"], "has what looks like a key"),
        (["sh", "-c", f"curl -d @- 'https://a.com/{KEY}' > said"], "has what looks like a key"),
        (["curl", "${A_HOOK}"], "has what looks like a key"),
    ],
)
def test_a_section_that_cannot_work_or_would_store_a_secret_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch, notify: Json, message: str
) -> None:
    monkeypatch.setenv("A_HOOK", f"https://a.com/{KEY}")
    with pytest.raises(ConfigError) as refused:
        load_config(site.write(notify=notify))
    assert message in str(refused.value) and KEY not in str(refused.value) and "word" not in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        ["curl", "-sS", "--fail", "-H", "Content-Type: application/json", "--data-binary", "@-", "https://a.com/hook"],
        ["curl", "--config", "hook.curl"],
        ["/opt/Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8/tell", "run"],
    ],
)
def test_a_command_without_a_secret_is_taken_as_it_is(site: Site, command: list[str]) -> None:
    config = load_config(site.write(notify=command))
    assert config.notify is not None and config.notify == tuple(command)
