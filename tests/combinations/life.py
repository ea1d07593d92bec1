"""A row of the covering array as a whole life of a run: it writes the files, serves the models, and types the commands.

What happened is kept for the checker: each command with its output, how far the ledger was then, and what could be read
of the run afterwards.
"""

import fcntl
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from command_model import RUNNING
from commands import Command, Commands, Done, wait_until
from factors import ADDED, KEY, KEY_VARIABLE, Setup, make_setup, plain_setup
from model_server import ModelServer
from outputs import CONFIGURATION, REACHED, Outputs, Reading, bare, read_outputs
from world import Ledger, World

HERE = Path(__file__).parent
RAISED = 10
"""`trials.max` after it was raised."""
LABELLED = 30
"""Answers of each model that people label, of each benchmark."""


@dataclass(frozen=True)
class Stage:
    """A command that acts on a run, and what can be read afterwards."""

    name: str
    done: Done
    begun: int
    """The number of lines in the ledger when the command began, and when it had ended."""
    ended: int
    outputs: Outputs | None
    config: Mapping[str, Any]
    """The settings that it was given."""
    run: str
    """The directory."""
    interrupted: str = ""
    """`killed` or `stopped`."""


@dataclass
class Life:
    """All that happened in one life."""

    row: Mapping[str, str]
    setup: Setup
    folder: Path
    stages: list[Stage] = field(default_factory=list)
    other: list[Done] = field(default_factory=list)
    """Commands that only read."""
    labels: list[dict[str, object]] = field(default_factory=list)
    left_running: bool = False
    """Whether a process of a command is there in the end."""

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return Ledger(self.folder / "ledger").lines()


class Leading:
    """Leads a life."""

    def __init__(self, life: Life, commands: Commands) -> None:
        self.life = life
        self.commands = commands
        self.row = life.row
        self.folder = life.folder
        self.ledger = Ledger(life.folder / "ledger")
        self.run = "runs/run"
        self.options: list[str] = []
        self.servers: list[ModelServer] = []

    # -- files -------------------------------------------------------------------------------------------------------

    def write_files(self) -> None:
        setup, folder = self.life.setup, self.folder
        setup.world.write(folder / "world")
        for name in ("plug_ins.py", "failing_grader.py", "inspect_task.py", "command_model.py", "world.py"):
            shutil.copy(HERE / name, folder)
        rows = [
            {"id": question, "prompt": f"[{question}] How much is it?", "answer": key, "topic": f"t{at % 2}"}
            for at, (question, key) in enumerate(setup.world.keys.items())
        ]
        half = len(rows) // 2
        for name, part in (("questions", rows), ("main", rows[:half]), ("side", rows[half:])):
            (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)))
        if self.row["supply"] == "lm_eval":
            self.write_lm_eval_task(folder / "lm_eval_tasks")
        if self.row["grader"] == "failing":
            (folder / "grader_is_broken").touch()

    def write_lm_eval_task(self, folder: Path) -> None:
        """The questions as a task of lm-evaluation-harness; whether more is better depends on the rubric."""
        folder.mkdir()
        shutil.copy(HERE / "lm_eval_credit.py", folder / "credit.py")
        kind = self.row["rubric"]
        metric = {"binary": "right", "partial": "credit", "reversed": "errors"}[kind]
        lines = [
            f"task: sums_{kind}",
            "dataset_path: json",
            f"dataset_kwargs: {{data_files: {{test: {self.folder / 'questions.jsonl'}}}}}",
            "test_split: test",
            "output_type: generate_until",
            'doc_to_text: "{{prompt}}"',
            'doc_to_target: "{{answer}}"',
            'generation_kwargs: {until: ["Q:"], do_sample: true}',
            f"process_results: !function credit.{kind}",
            f"metric_list: [{{metric: {metric}, aggregation: mean, higher_is_better: {kind != 'reversed'}}}]",
        ]
        (folder / "task.yaml").write_text("\n".join(lines))

    def write_config(self, config: Mapping[str, Any], name: str = "run") -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(config, indent=1))
        return path

    def with_addresses(self, config: Any, urls: Sequence[str]) -> Any:
        """A configuration with the addresses of servers."""
        places = {
            "{url}": urls[0],
            "{python}": sys.executable,
            "{server}": str(HERE / "model_server.py"),
            "{world}": str(self.folder / "world"),
            "{ledger}": str(self.folder / "ledger"),
        }
        config = _filled(config, places)
        for at, model in enumerate(config["models"]):
            if not model.keys() & {"launch", "recorded", "inspect", "command"}:
                by_level = {"one": urls[0], "each": urls[at % len(urls)], "replicas": list(urls[:2])}
                model["base_url"] = by_level[self.row["addresses"]]
        return config

    # -- commands ----------------------------------------------------------------------------------------------------

    def lines(self) -> int:
        for server in self.servers:
            server.settle()
        return self.ledger.count()

    def stage(
        self, name: str, *arguments: str, reading: Reading | None = Reading.SOME, befall: str = "", after: int = 0
    ) -> Stage:
        """A command, which may be killed or stopped after so many answers."""
        begun = self.lines()
        command = self.commands.begin(*arguments)
        interrupted = ""
        if befall and wait_until(lambda: self.is_time(command, begun, after), command):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                (command.kill if befall == "killed" else command.interrupt)()
                interrupted = befall
        done = command.wait()
        outputs = read_outputs(self.commands, self.folder, self.run, reading) if reading is not None else None
        stage = Stage(name, done, begun, self.lines(), outputs, self.config, self.run, interrupted)
        self.life.stages.append(stage)
        return stage

    def is_time(self, command: Command, begun: int, after: int) -> bool:
        """Whether something befalls a start now: after so many answers, or with 0 after its first look."""
        return self.lines() >= begun + after if after else "look 1:" in command.printed()

    def start(self, name: str, *options: str, **named: Any) -> Stage:
        directory = () if self.run == "runs/run" else ("--run-dir", self.run)
        if name.startswith("again"):
            named["reading"] = Reading.FILE
        return self.stage(name, "run", "run.yaml", "--display", "plain", *self.options, *directory, *options, **named)

    # -- a life ------------------------------------------------------------------------------------------------------

    def lead(self, ray: str = "") -> None:
        setup, row = self.life.setup, self.row
        self.write_files()
        with ExitStack() as stack:
            number = {"one": 1, "each": len(setup.config["models"]) + 1, "replicas": 2}[row["addresses"]]
            self.servers = [stack.enter_context(ModelServer(setup.world, self.ledger)) for _ in range(number)]
            urls = [server.url for server in self.servers]
            self.commands.environment |= {
                "SIM_BASE_URL": urls[0],
                "SIM_API_KEY": KEY,
                "HF_DATASETS_CACHE": str(self.folder / "cache"),
                "HF_HUB_OFFLINE": "1",
            }
            self.options = [ray if option == "{ray}" else option for option in setup.options]
            self.config = self.with_addresses(setup.config, urls)
            self.added = self.with_addresses({"models": [*setup.config["models"], self.joining()]}, urls)["models"][-1]
            self.write_config(self.config)
            self.earlier_runs()
            if row["dry_run"] == "yes":
                self.stage("dry run", "run", "run.yaml", "--dry-run", reading=None)
            self.first_starts()
            first = self.start("run")
            if first.done.code == CONFIGURATION:
                return
            self.start("again")
            self.continued()
            self.and_afterwards()
            if row["labels"] != "none":
                self.labelled()
            last = self.life.stages[-1]
            self.life.stages[-1] = replace(last, outputs=read_outputs(self.commands, self.folder, self.run))
        self.life.left_running = self.is_locked(self.folder / RUNNING)

    def is_locked(self, path: Path) -> bool:
        """Whether a process holds the lock of a file."""
        if not path.exists():
            return False
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def joining(self) -> dict[str, Any]:
        """The model that joins later: like one of the others."""
        like = next(model for model in self.life.setup.config["models"] if "recorded" not in model)
        joining = {**like, "name": ADDED[0]}
        if "inspect" in like:
            joining["inspect"] = {**like["inspect"], "model": f"openai-api/sim/{ADDED[0]}"}
        if "command" in like:
            joining["command"] = [ADDED[0] if word == like["name"] else word for word in like["command"]]
        return joining

    def earlier_runs(self) -> None:
        """Runs that this one takes outcomes of; their servers are sound, and count elsewhere."""
        runs = {"before": self.row["supply"] == "recorded", "elder": self.row["prior"] == "earlier"}
        world = World(self.life.setup.world.models, self.life.setup.world.keys, seconds=0.002)
        for name, is_wanted in runs.items():
            if not is_wanted:
                continue
            ledger = Ledger(self.folder / f"ledger_{name}")
            with ModelServer(world, ledger) as server:
                config = {key: self.config[key] for key in ("questions", "benchmarks", "rubric") if key in self.config}
                names = ["bob"] if name == "before" else ["ada", "bob", "cyd"]
                trials = {"min": 3, "max": 3} if self.row["draw"] == "none" else {"min": 1, "max": 1}
                shares_seeds = name == "before" and self.row["seeds"] == "coupled"
                config |= {
                    "name": name,
                    "seed": self.config.get("seed", 0) if shares_seeds else 77,
                    "models": [{"name": model, "base_url": server.url} for model in names],
                    "sampling": plain_setup().config["sampling"],
                    "grader": _filled(self.life.setup.config["grader"], {"{url}": server.url}),
                    "objective": {"kind": "precision", "half_width": 0.5},
                    "stopping": {"on_alarm": "never"},
                    "trials": {**trials, "seeds": "coupled"} if shares_seeds else trials,
                }
                self.write_config(config, name)
                done = self.commands.run("run", f"{name}.yaml", "--display", "none")
                assert done.code == 0, done

    def first_starts(self) -> None:
        moments = {"killed_twice": ("killed", (10, 0)), "stopped": ("stopped", (30,))}
        kind, after = moments.get(self.row["interruption"], ("", ()))
        for number, moment in enumerate(after):
            stage = self.start(f"{kind} {number + 1}", befall=kind, after=moment, reading=Reading.TRIALS)
            if not stage.interrupted:
                break

    def raised(self) -> dict[str, Any]:
        """What is raised for the run to go on: the horizon, and caps."""
        budget = {
            f"budget.{key}": 3 * value if key != "wall_time" else "6s"
            for key, value in self.config.get("budget", {}).items()
        }
        return {"trials.max": RAISED, **budget}

    def continued(self) -> None:
        match self.row["continuation"]:
            case "max_by_file":
                config = json.loads(json.dumps(self.config))
                for key, value in self.raised().items():
                    section, _, name = key.partition(".")
                    config[section][name] = value
                self.change(config)
                self.start("max raised by file")
                self.start("again after max_by_file")
            case "max_by_set":
                self.config = json.loads(json.dumps(self.config))
                given = []
                for key, value in self.raised().items():
                    section, _, name = key.partition(".")
                    self.config[section][name] = value
                    given += ["--set", f"{key}={value}"]
                self.start("max raised by --set", *given)
                self.start("again with --set", *given)
                self.start("again without --set")
                self.write_config(self.config)
            case "model_added":
                self.change({**self.config, "models": [*self.config["models"], self.added]})
                self.start("model added")
                self.start("again with the model")

    def change(self, config: dict[str, Any]) -> None:
        self.config = config
        self.write_config(config)

    def and_afterwards(self) -> None:
        match self.row["afterwards"]:
            case "regraded":
                (self.folder / "grader_is_broken").unlink(missing_ok=True)
                self.stage("regraded", "regrade", self.run, "--config", "run.yaml")
                self.start("again after the regrade")
            case "moved" | "moved_as_table" as level:
                kind = {"moved": "jsonl", "moved_as_table": "csv"}[level]
                exported = self.stage(
                    "exported", "export", self.run, "--format", kind, "-o", f"moved.{kind}", reading=None
                )
                if exported.done.code != REACHED:
                    return
                before, self.run = self.run, "runs/moved"
                imported = self.stage("imported", "import", f"moved.{kind}", "--to", self.run, "--config", "run.yaml")
                if imported.done.code != REACHED:
                    self.run = before
                    return
                continued = self.start("continued elsewhere")
                if continued.done.code == CONFIGURATION and "adaptive-eval regrade" in continued.done.err:
                    self.stage("regraded elsewhere", "regrade", self.run, "--config", "run.yaml")
                    self.start("continued after the regrade")

    def labelled(self) -> None:
        """People label answers of each model, also empty ones, unless the run came as a table, without texts."""
        rows = read_outputs(self.commands, self.folder, self.run, Reading.TRIALS).trials or []
        rows = rows if any(trial.get("text") for trial in rows) else []
        world, seen = self.life.setup.world, dict[tuple[str, str], int]()
        for trial in rows:
            model, question, seed = trial["model"], bare(trial["question"]), trial["seed"]
            part = model, trial["question"].rpartition("/")[0]
            if trial["category"] is None or trial["removed"] or seed is None or seen.get(part, 0) >= LABELLED:
                continue
            seen[part] = seen.get(part, 0) + 1
            answer = world.answer(model, question, seed, 1.0)
            right = bool(trial.get("text")) and world.people_say_right(answer)
            label = {"model": model, "question": trial["question"], "trial": trial["trial"]}
            self.life.labels.append({**label, "label": "correct" if right else "wrong"})
        file = self.folder / "labels.jsonl"
        file.write_text("".join(json.dumps(label) + "\n" for label in self.life.labels))
        self.stage("labelled", "label", self.run, "--from", "labels.jsonl")


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    """A copy with the places filled in."""
    if isinstance(value, dict):
        return {key: _filled(part, places) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, places) for part in value]
    return places.get(value, value) if isinstance(value, str) else value


def lead_life(
    row: Mapping[str, str],
    folder: Path,
    address: str,
    *,
    ray: str = "",
    environment: Mapping[str, str] | None = None,
) -> Life:
    """Lead the life of a row in an empty folder; commands are begun at that address, servers on that Ray cluster."""
    life = Life(row, make_setup(row), folder)
    Leading(life, Commands(address, folder, {KEY_VARIABLE: KEY, **(environment or {})})).lead(ray)
    return life
