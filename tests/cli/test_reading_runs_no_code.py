"""No command that reads a run loads what its stored configuration names: a rule, a policy, a grader, a file."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from live_runs import Site
from typer.testing import CliRunner, Result

from adaptive_eval.cli import COMMANDS, app
from adaptive_eval.reading import read_run
from adaptive_eval.reading.counts import read_counts
from adaptive_eval.run.exit_codes import ExitCode
from adaptive_eval.store.schema import DATABASE_FILE

PLUG_IN = '''
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import Sequential

class Rule(Sequential):
    """Wrong in one run of <b>twenty</b>, as [they](http://x) say."""

class Policy(Uniform):
    pass

def grade(text, question):
    return "{" + question.answer + "}" in text
'''
MARK = "ran"
ATTACK = f"""
from pathlib import Path

Path(__file__).parents[1].joinpath({MARK!r}).touch()
{PLUG_IN}
"""

CASES: dict[str, Sequence[str] | None] = {
    "run": ("run NEW.yaml --run-dir NEW", "run NEW.yaml --dry-run --run-dir RUN"),
    "monitor": ("monitor RUN --once", "monitor RUN --once --display json", "monitor RUN --display plain"),
    "check": None,  # asks servers, and reads no run
    "report": (
        "report RUN",
        "report RUN --format md",
        "report RUN --format json",
        "report RUN --format csv --output -",
        "report RUN --plots PLOTS",
    ),
    "compare": ("compare RUN COPY", "compare RUN COPY --format json"),
    "regrade": ("regrade RUN",),
    "replay": ("replay RUN --output REPLAY", "replay RUN --runs 2 --output REPLAY"),
    "plan": ("plan PLAIN.yaml --pilot RUN --worlds 10", "plan PLAIN.yaml --worlds 10"),
    "validate": ("validate NEW.yaml",),
    "init": None,  # writes a configuration
    "schema": None,  # prints what configurations may have
    "import": ("import RUN/report.csv --to IMPORTED", "import RUN --to IMPORTED"),
    "export": tuple(
        f"export RUN --format {form} --output OUT" for form in ("npz", "csv", "jsonl", "inspect", "scorio")
    ),
    "simulate": None,  # serves a world
}
"""Of every command, the ways in which it comes across a run; None where there is none."""


@dataclass(frozen=True)
class Stranger:
    """A run of someone else, whose plug-ins would leave a mark."""

    folder: Path
    run: Path

    def command(self, line: str) -> Result:
        """A command of the user's, who stands in the folder where the plug-ins lie."""
        return CliRunner().invoke(app, [re.sub(r"RUN\b(?!/)", str(self.run), word) for word in line.split()])

    @property
    def ran(self) -> bool:
        """Its code did."""
        loaded = any(name == "evilrun" or name.startswith("evilrun.") for name in sys.modules)
        return loaded or (self.folder / MARK).exists()


def forget() -> None:
    """Nothing of an earlier test is loaded."""
    for name in [name for name in sys.modules if name.startswith("evilrun")]:
        del sys.modules[name]


@pytest.fixture(params=["finished", "killed"])
def stranger(request: pytest.FixtureRequest, site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    package = site.folder / "evilrun"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "payload.py").write_text(PLUG_IN)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget()
    named = site.write(
        stopping={"rule": "evilrun.payload:Rule"},
        allocation={"policy": "evilrun.payload:Policy"},
        grader={"kind": "python", "function": "evilrun.payload:grade"},
        trials={"min": 2, "max": 4},
    )
    ended = site.run(named)
    assert ended.exit_code in (ExitCode.REACHED, ExitCode.SPENT), ended.output
    run = site.directory()
    if request.param == "killed":  # as a kill leaves it
        with closing(sqlite3.connect(run / DATABASE_FILE)) as database:
            database.execute("DELETE FROM events WHERE kind = 'finished'")
            database.commit()
    shutil.copytree(run, site.folder / "COPY")
    plain = site.config(trials={"min": 2, "max": 4})
    site.folder.joinpath("PLAIN.yaml").write_text(yaml.safe_dump(plain))
    prior = plain | {"prior_evidence": {"run": str(run)}}
    site.folder.joinpath("NEW.yaml").write_text(yaml.safe_dump(prior))
    (package / "payload.py").write_text(ATTACK)
    (site.folder / ".env").write_text("PORT=1\n")
    forget()
    monkeypatch.setattr(sys, "path", [str(site.folder), *(one for one in sys.path if one != str(site.folder))])
    monkeypatch.setenv("PYTHONPATH", f"{site.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.chdir(site.folder)
    yield Stranger(site.folder, run)
    forget()


def test_every_command_has_a_case() -> None:
    assert CASES.keys() == COMMANDS.keys(), "say how the new command reads a run, or that it reads none"


@pytest.mark.parametrize("name", [name for name, lines in CASES.items() if lines is not None])
def test_no_command_runs_the_code_of_a_run(stranger: Stranger, name: str) -> None:
    importing = list(sys.path)
    stranger.command("report RUN --format csv")
    for line in CASES[name] or ():
        done = stranger.command(line)
        assert done.exception is None or isinstance(done.exception, SystemExit), (line, done.exception)
        assert not stranger.ran, line
        assert sys.path == importing, line
        for made in ("NEW", "REPLAY", "OUT", "IMPORTED"):
            place = stranger.folder / made
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)


def test_the_attack_would_be_seen(stranger: Stranger) -> None:
    stranger.command("validate run.yaml")
    assert stranger.ran


def test_the_page_of_a_run_and_of_its_folder_runs_no_code(stranger: Stranger) -> None:
    for place in (stranger.run, stranger.run.parent):
        command = [sys.executable, "-u", "-m", "adaptive_eval", "monitor", str(place), "--web"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=stranger.folder)
        with process:
            try:
                assert process.stdout is not None
                found = re.search(r"http://\S+", process.stdout.readline())
                assert found is not None
                page = httpx.get(found[0], follow_redirects=True)
                assert page.status_code == 200
                links = {link for link in re.findall(r'(?:href|src)="([^"#:]+)"', page.text)}
                for path in {"api/runs", "api/run", "api/view", "metrics", *links}:
                    httpx.get(httpx.URL(str(page.url)).join(path))
            finally:
                process.send_signal(signal.SIGTERM)
    assert not stranger.ran


OPENED: list[str] = []
WATCHING = threading.Event()


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and WATCHING.is_set() and isinstance(arguments[0], str):
        OPENED.append(arguments[0])


@pytest.mark.parametrize("name", ["report", "monitor", "compare", "regrade", "export"])
def test_what_the_stored_configuration_names_is_not_opened(stranger: Stranger, name: str) -> None:
    sys.addaudithook(_hear)
    OPENED.clear()
    WATCHING.set()
    try:
        for line in CASES[name] or ():
            stranger.command(line)
    finally:
        WATCHING.clear()
    named = [stranger.folder / one for one in (".env", "questions.jsonl", "evilrun/payload.py")]
    assert OPENED
    assert not {Path(one).resolve() for one in OPENED} & set(named)


def test_secrets_that_a_stored_configuration_asks_for_are_not_filled_in(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "the-secret-of-the-reader")
    with closing(sqlite3.connect(stranger.run / DATABASE_FILE)) as database:
        ((body,),) = database.execute("SELECT body FROM configurations")
        stored = json.loads(body)
        stored["prompt"]["system"] = "${MY_KEY}"
        stored["models"][0]["prompt"]["system"] = "${MY_KEY}"
        database.execute("UPDATE configurations SET body = ?", (json.dumps(stored),))
        database.commit()
    for line in (
        "report RUN --output -",
        "report RUN --format json --output -",
        "export RUN --format jsonl --output OUT",
    ):
        assert "the-secret-of-the-reader" not in stranger.command(line).output
    assert "the-secret-of-the-reader" not in (stranger.folder / "OUT").read_text()


def test_what_the_run_has_found_is_told_all_the_same(stranger: Stranger) -> None:
    view = read_run(stranger.run)
    assert view.results is not None
    assert [model.name for model in view.results.models][-1] == "cyd"
    assert view.looks
    assert "plug-in evilrun.payload:Rule" in view.words.rule
    assert view.words.promise.endswith("It says of itself: 'Wrong in one run of btwentyb, as they(httpx) say.'.")
    assert "evilrun.payload:Policy" in view.words.allocation
    counts = read_counts(stranger.run)
    trials = dict(zip(view.looks[-1].models, view.looks[-1].trials, strict=True))
    assert {name: int(cells.sum()) for name, cells in zip(counts.models, counts.cells, strict=True)} == trials
    told = [one.text for one in view.results.warnings if one.kind == "plug_in"]
    killed = view.events[-1].kind != "finished"
    assert len(told) == int(killed)
    assert all("stopping.rule: evilrun.payload:Rule" in text and "not loaded to read it" in text for text in told)


def test_grading_again_by_a_stored_function_is_refused(stranger: Stranger) -> None:
    refused = stranger.command("regrade RUN")
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert f"adaptive-eval regrade {stranger.run} --config CONFIG" in refused.stderr


def test_a_run_from_before_anything_was_told_of_plug_ins_opens(stranger: Stranger) -> None:
    with closing(sqlite3.connect(stranger.run / DATABASE_FILE)) as database:
        ((body,),) = database.execute("SELECT body FROM configurations")
        stored = json.loads(body)
        assert stored.pop("plug_ins").keys() == {"stopping.rule", "allocation.policy"}
        database.execute("UPDATE configurations SET body = ?", (json.dumps(stored),))
        database.commit()
    words = read_run(stranger.run).words
    assert words.promise == "That of the plug-in evilrun.payload:Rule, not one of adaptive-eval's own."
