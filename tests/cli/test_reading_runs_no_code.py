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
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
import yaml
from command_line import typed
from forging import forging
from live_runs import ENDED, Site
from patient_time import HANGS

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import COMMANDS
from adaptive_eval.report.stored import read_counts
from adaptive_eval.report.view import read_view
from adaptive_eval.store.errors import DATABASE_FILE

PLUG_IN = '''
from dataclasses import dataclass

from adaptive_eval.core.objectives import Best
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.sequential import Sequential

class Rule(Sequential):
    """Wrong in one run of <b>twenty</b>, as [they](http://x) say."""

class Policy(Uniform):
    pass

@dataclass(frozen=True)
class Objective(Best):
    """The first against those of <i>its</i> kind."""

    depth: int = 1

    @property
    def rule(self):
        return Judge()

class Judge(Rule):
    """As the rule, but sterner: |z| > 2 / √t."""

def grade(text, question, sign="{"):
    return sign + question.answer + "}" in text
'''
MARK = "ran"
ATTACK = f"""
from pathlib import Path

Path(__file__).parents[1].joinpath({MARK!r}).touch()
{PLUG_IN}
"""

CASES: dict[str, Sequence[str] | None] = {
    "run": (
        "run NEW.yaml --run-dir NEW",
        "run NEW.yaml --dry-run --run-dir RUN",
        "run RECORDED.yaml --run-dir NEW",
        "run FITTED.yaml --run-dir NEW",
    ),
    "monitor": ("monitor RUN --once", "monitor RUN --once --display json", "monitor RUN --display plain"),
    "report": (
        "report RUN",
        "report RUN --format md",
        "report RUN --format json",
        "report RUN --format csv --output -",
        "report RUN --format junit",
    ),
    "compare": ("compare RUN COPY", "compare RUN COPY --format json"),
    "regrade": ("regrade RUN --config PLAIN.yaml",),
    "label": ("label RUN --show",),
    "rescore": ("rescore RUN", "rescore RUN --format json", "rescore RUN --rubric RUBRIC.yaml"),
    "verify": ("verify RUN",),
    "replay": ("replay RUN --output REPLAY", "replay RUN --runs 2 --output REPLAY"),
    "plan": ("plan PLAIN.yaml --pilot RUN --simulations 10", "plan PLAIN.yaml --simulations 10"),
    "validate": ("validate NEW.yaml",),
    "init": None,  # writes a configuration
    "schema": None,  # prints what configurations may have
    "import": ("import RUN/report.csv --to IMPORTED", "import RUN --to IMPORTED"),
    "export": tuple(f"export RUN --format {form} --output OUT" for form in ("npz", "csv", "jsonl")),
    "demo": None,  # writes a page
    "simulate": None,  # serves a world
}
"""Of every command, the ways in which it comes across a run; None where there is none."""
REFUSED = {
    "run NEW.yaml --run-dir NEW",  # whose outcomes another grader has given
    "run NEW.yaml --dry-run --run-dir RUN",
    "run RECORDED.yaml --run-dir NEW",  # as well
    "report RUN --format junit",  # of a run without a gate
    "import RUN/report.csv --to IMPORTED",
    "import RUN --to IMPORTED",
    "replay RUN --output REPLAY",  # whose decisions its code made
    "replay RUN --runs 2 --output REPLAY",
}
"""Of these, the ways that end with an error of whoever took them."""


@dataclass(frozen=True)
class Stranger:
    """A run of someone else, whose plug-ins would leave a mark."""

    home: Path
    folder: Path

    @property
    def run(self) -> Path:
        """Where its run lies."""
        return self.folder / "RUN"

    @property
    def ran(self) -> bool:
        """Its code did."""
        loaded = any(name == "evilrun" or name.startswith("evilrun.") for name in sys.modules)
        return loaded or any((folder / MARK).exists() for folder in (self.home, self.folder))


def forget() -> None:
    """Nothing of an earlier test is loaded."""
    for name in [name for name in sys.modules if name.startswith("evilrun")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> Path:
    """The stranger's folder: a run that has ended, and the plug-ins that it names, which would leave a mark by now."""
    site = Site.make(tmp_path_factory.mktemp("home"), base_url)
    payload = site.folder / "evilrun" / "payload.py"
    payload.parent.mkdir()
    (payload.parent / "__init__.py").touch()
    payload.write_text(PLUG_IN)
    named = site.write(
        objective={"kind": "evilrun.payload:Objective", "options": {"depth": 2}},
        stopping={"rule": "evilrun.payload:Rule"},
        grader={"kind": "python", "function": "evilrun.payload:grade", "options": {"sign": "{"}},
        grading={"workers": 1},
        trials={"min": 2, "max": 4, "policy": "evilrun.payload:Policy"},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        ended = site.run(named)
    assert ended.exit_code in ENDED, ended.output
    site.directory().rename(site.folder / "RUN")
    plain = site.config(trials={"min": 2, "max": 4})
    (site.folder / "PLAIN.yaml").write_text(yaml.safe_dump(plain))
    (site.folder / "NEW.yaml").write_text(yaml.safe_dump(plain | {"prior": {"run": "RUN"}}))
    recorded = [{"name": "ada", "recorded": "RUN"}, *plain["models"][1:]]  # type: ignore[index]
    (site.folder / "RECORDED.yaml").write_text(yaml.safe_dump(plain | {"models": recorded}))
    short = {"is_correct": True, "completion_tokens": {"below": "p33"}}
    categories = [{"name": "short", "weight": 1, "when": short}, {"name": "other", "weight": 0}]
    fitted = {"rubric": {"categories": categories, "thresholds": {"from": "RUN"}}}
    (site.folder / "FITTED.yaml").write_text(yaml.safe_dump(plain | fitted))
    (site.folder / "RUBRIC.yaml").write_text("rubric: exact_match\n")
    (site.folder / ".env").write_text("PORT=1\n")
    payload.write_text(ATTACK)
    return site.folder


@pytest.fixture(params=["finished", "killed"])
def stranger(
    request: pytest.FixtureRequest, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stranger]:
    """What the stranger gave away lies where the user stands, where Python imports from, and where the run says."""
    folder = tmp_path / "here"
    shutil.copytree(home, folder)
    if request.param == "killed":  # as a kill leaves it
        with closing(sqlite3.connect(folder / "RUN" / DATABASE_FILE)) as database:
            database.execute("DELETE FROM notes WHERE kind = 'finished'")
            database.commit()
        (folder / "RUN/lock").unlink()  # which says what was committed last
    shutil.copytree(folder / "RUN", folder / "COPY")
    forget()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
    monkeypatch.chdir(folder)
    yield Stranger(home, folder)
    forget()


def test_every_command_has_a_case() -> None:
    assert CASES.keys() == COMMANDS.keys(), "say how the new command reads a run, or that it reads none"


OPENED: list[str] = []
WATCHING = threading.Event()


def _hear(event: str, arguments: tuple[object, ...], watching: threading.Event = WATCHING) -> None:
    if event == "open" and watching.is_set() and isinstance(arguments[0], str):
        OPENED.append(arguments[0])


@pytest.fixture(scope="module")
def audit() -> None:
    """From now on it is heard what is opened; nothing takes such a hook away."""
    sys.addaudithook(_hear)


@pytest.fixture
def opened(audit: None) -> Iterator[list[str]]:
    """The files that are opened while a test goes on."""
    OPENED.clear()
    WATCHING.set()
    yield OPENED
    WATCHING.clear()


GIVEN = ("run", "validate", "plan", "import", "regrade")
"""These are given settings of the user's, in which variables are filled in."""
BY_ITS_END = ("monitor", "report", "verify")
"""These tell a run that was killed from one that has ended."""


@pytest.mark.parametrize(
    ("stranger", "name"),
    [
        pytest.param("killed", "run", marks=pytest.mark.slow),
        *(("finished", name) for name, lines in CASES.items() if lines is not None and name != "run"),
        *(("killed", name) for name in BY_ITS_END),
    ],
    indirect=["stranger"],
)
def test_no_command_runs_code_of_a_run_or_opens_what_it_names(stranger: Stranger, name: str, opened: list[str]) -> None:
    importing = list(sys.path)
    named = {place / file for place in (stranger.home, stranger.folder) for file in (".env", "questions.jsonl")}
    if name == "import":
        typed("report", "RUN", "--format", "csv")
    for line in CASES[name] or ():
        opened.clear()
        done = typed(*line.split())
        if "RUBRIC.yaml" not in line and name not in GIVEN:  # beside a file of the user's, which may name them
            assert not {Path(path).resolve() for path in opened} & named, line
        assert done.exit_code != ExitCode.CONFIGURATION or line in REFUSED, (line, done.stderr)
        assert not stranger.ran, line
        assert sys.path == importing, line
        for made in ("NEW", "REPLAY", "OUT", "IMPORTED"):
            place = stranger.folder / made
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    (seen := stranger.folder / ".env").read_bytes()
    assert str(seen) in opened and seen.resolve() in named, "it would have been heard"


@pytest.mark.parametrize("stranger", ["finished"], indirect=True)
def test_the_attack_would_be_seen(stranger: Stranger) -> None:
    typed("validate", "run.yaml")  # a configuration that is given names what it likes
    assert stranger.ran


@contextmanager
def served(stranger: Stranger, *words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A command that serves a page, where the plug-ins lie, and the address of the page."""
    command, pipe = [sys.executable, "-u", "-m", "adaptive_eval", *words], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=stranger.folder) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+/", f"{process.stdout.readline()}/")
            assert address is not None
            yield process, address[0]
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("stranger", ["finished", "killed"], indirect=True)
def test_the_page_of_a_run_runs_no_code(stranger: Stranger) -> None:
    with served(stranger, "monitor", "RUN", "--web") as (process, address):
        answers = [httpx2.get(f"{address}{path}", timeout=HANGS) for path in ("", "api/view")]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert "evilrun.payload:Objective" in answers[-1].text
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANGS)
    assert not stranger.ran


@pytest.mark.slow
@pytest.mark.parametrize("stranger", ["killed"], indirect=True)
def test_the_page_to_label_its_answers_on_runs_no_code(stranger: Stranger) -> None:
    with served(stranger, "label", "RUN") as (process, address):
        shown = httpx2.get(f"{address}now", timeout=HANGS).json()
        label = f"label?place={shown['place']}&label={shown['fields'][0]['levels'][0]}"
        answers = [httpx2.post(f"{address}{path}", timeout=HANGS) for path in (label, "end")]
        assert [answer.status_code for answer in answers] == [200, 200]
        out, err = process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.REACHED and "1 label stored" in out
    assert err == "choosing the answers to label ...\n"
    assert not stranger.ran


def test_results_of_the_run_are_shown_without_its_code(stranger: Stranger) -> None:
    view = read_view(stranger.run)
    assert view.results is not None
    assert [model.name for model in view.results.models][-1] == "cyd"
    assert view.looks
    sentence = "The plug-in evilrun.payload:Objective chooses what is compared."
    assert view.words.objective == f"{sentence} Its own description: 'The first against those of ＜i＞its＜/i＞ kind.'."
    assert view.words.rule.startswith("The plug-in evilrun.payload:Objective has its own rule")
    assert view.words.promise.endswith("Its own description: 'As the rule, but sterner： ｜z｜ ＞ 2 / √t.'.")
    assert view.results.compares
    assert "evilrun.payload:Policy" in view.words.allocation
    counts = read_counts(stranger.run)
    trials = dict(zip(view.looks[-1].models, view.looks[-1].trials, strict=True))
    assert {name: int(cells.sum()) for name, cells in zip(counts.roster.models, counts.cells, strict=True)} == trials


def test_a_run_without_records_of_its_plug_ins_opens(stranger: Stranger) -> None:
    with forging(stranger.run) as database:
        ((body,),) = database.execute("SELECT body FROM configurations")
        stored = json.loads(body)
        plug_ins = stored.pop("plug_ins")
        assert plug_ins.keys() == {"objective.kind", "objective.rule", "stopping.rule", "trials.policy"}
        assert plug_ins["objective.kind"]["sources"].keys() == {"evilrun/__init__.py", "evilrun/payload.py"}
        stored["objective"]["kind"] = "best"  # there was no other kind of them
        assert stored["objective"].keys() >= {"k", "baseline", "pairs", "half_width", "value"}
        database.execute("UPDATE configurations SET body = ?", (json.dumps(stored),))
    assert read_view(stranger.run).words.promise == "That of the plug-in; adaptive-eval adds none."
