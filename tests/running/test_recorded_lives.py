"""Whatever happens to a run of recorded models and a new one, those are never asked, and nothing is bought twice."""

import json
import shutil
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from ledger_check import Books, stored_looks, stored_rows
from lives import QUESTIONS, SKILLS, Fate, Start, World, share_of
from thoroughness import sizes

from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.report.stored import read_counts

NEW = "cyd"
OLD = tuple(name for name in SKILLS if name != NEW)
LONGEST = 10
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
SETTINGS: dict[str, Any] = {
    "questions": "questions.jsonl",
    "sampling": {"temperature": 0.6, "max_tokens": 100},
    "grader": "exact",
}


def write_questions(folder: Path) -> None:
    rows = ({"id": key, "prompt": f"ask {key}", "answer": "right"} for key in QUESTIONS)
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))


def correlated_answer(model: str, question: str, seed: int) -> str:
    """The answer of a server that draws with random numbers which depend on question and seed alone."""
    return "right" if share_of(question, seed) < SKILLS[model] else "wrong"


class SharedBooks(Books):
    """Books of a run whose models share their seeds."""

    def base(self, model: str, question: str) -> int:
        return super().base("", question)


@cache
def earlier(seeds: str) -> Path:
    """A finished run of the others, made once."""
    folder = Path(tempfile.mkdtemp(dir=MEMORY))
    write_questions(folder)
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in OLD]
    trials = {"min": 2 if seeds == "hashed" else 4, "max": 4, "optimize": "cost", "seeds": seeds}
    objective = "ranking" if seeds == "hashed" else {"kind": "precision", "half_width": 0.5}
    (folder / "old.yaml").write_text(
        json.dumps({**SETTINGS, "models": models, "trials": trials, "objective": objective})
    )
    assert World().run(load_config(folder / "old.yaml"), folder / "old", Start()) is not None
    return folder / "old"


class RecordedLives(RuleBasedStateMachine):
    """The lives of one such run."""

    seeds: ClassVar[str] = "hashed"
    objectives: ClassVar[tuple[Any, ...]] = ("place", "ranking")
    books_class: ClassVar[type[Books]] = Books

    @initialize(
        run_seed=st.integers(0, 2**31 - 1),
        slots=st.sampled_from([1, 3, 16]),
        samples=st.sampled_from([1, 2]),
        objective=st.sampled_from([0, 1]),
        min_trials=st.integers(1, 2),
        budget=st.one_of(st.none(), st.integers(8, 40)),
        broken=st.sets(st.sampled_from(QUESTIONS), max_size=1),
    )
    def begin(
        self,
        run_seed: int,
        slots: int,
        samples: int,
        objective: int,
        min_trials: int,
        budget: int | None,
        broken: set[str],
    ) -> None:
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY)))
        write_questions(self.folder)
        if self.seeds == "coupled":
            run_seed = 0  # that of the earlier run
            for place in ("lives", "ledger_check"):
                self.stack.enter_context(patch(f"{place}.server_answer", correlated_answer))
        shutil.copytree(earlier(self.seeds), self.folder / "old")
        self.settings: dict[str, Any] = {
            **SETTINGS,
            "seed": run_seed,
            "objective": self.objectives[objective],
            "trials": {"min": min_trials, "max": 4, "optimize": "cost", "seeds": self.seeds},
            "concurrency": {"in_flight": slots, "samples_per_request": samples},
        }
        self.settings |= {} if budget is None else {"budget": {"trials": budget}}
        self.extended = False
        self.sound = True
        self.world = World(broken=broken)
        self.directory = self.folder / "new"
        self.books = self.books_class(self.directory, run_seed, consecutive=False)

    def config(self) -> RunConfig:
        recorded = [{"name": name, "recorded": str(self.folder / "old")} for name in OLD]
        models = [*recorded, {"name": NEW, "base_url": "http://127.0.0.1:9/v1"}]
        path = self.folder / "new.yaml"
        path.write_text(json.dumps(self.settings | {"models": models}))
        return load_config(path)

    @rule(
        fate=st.sampled_from([Fate.NOTHING, Fate.KILL, Fate.KILL, Fate.STOP, Fate.STOP_AT_ONCE]),
        at=st.one_of(st.integers(1, 12), st.integers(1, 120)),
    )
    def start(self, fate: Fate, at: int) -> None:
        self.sound = False
        before = len(self.books.rows)
        self.world.run(self.config(), self.directory, Start(fate, at))
        self.books.check(self.world, fate, [NEW])
        now = len(self.books.rows)
        assert now <= max(self.settings.get("budget", {}).get("trials", now), before)
        self.sound = True

    @rule(question=st.none() | st.sampled_from(QUESTIONS))
    def break_or_mend_the_grader(self, question: str | None) -> None:
        self.world.broken = set() if question is None else {question}

    @precondition(lambda self: self.settings["trials"]["max"] < LONGEST)
    @rule()
    def double_the_horizon(self) -> None:
        self.settings["trials"]["max"] *= 2
        self.extended = True

    @precondition(lambda self: "budget" in self.settings)
    @rule(by=st.integers(1, 30))
    def raise_the_budget(self, by: int) -> None:
        """Another cap holds from the next look on; looks that were taken stand."""
        self.extended = self.extended or bool(stored_looks(self.directory))
        self.settings["budget"] = {"trials": self.settings["budget"]["trials"] + by}

    @rule()
    def lose_the_earlier_run(self) -> None:
        """What was taken from the earlier run is stored, once there is a look."""
        if (self.directory / "run.sqlite").exists() and self.books.rows:
            shutil.rmtree(self.folder / "old", ignore_errors=True)

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            with self.stack:
                if self.sound:
                    self.mended()

    def mended(self) -> None:
        """In the end an undisturbed run of the same settings is the judge."""
        self.world.broken = set()
        ended = self.world.run(self.config(), self.directory, Start())
        self.books.check(self.world, Fate.NOTHING, [NEW])
        assert {request.model for request in self.world.log} <= {NEW}
        counts = read_counts(self.directory)
        held = dict(zip(counts.roster.models, counts.cells.sum(axis=1).tolist(), strict=True))
        before = read_counts(earlier(self.seeds))
        counted = dict(zip(before.roster.models, before.cells.sum(axis=1).tolist(), strict=True))
        assert all(held[name] == counted[name] for name in OLD), "all that was recorded counts, once"
        if not (self.folder / "old").exists():
            shutil.copytree(earlier(self.seeds), self.folder / "old")
        reference = World().run(self.config(), self.folder / "reference", Start())
        assert ended is not None and reference is not None
        reference_rows = stored_rows(self.folder / "reference")
        if reference.results is None or self.extended or self.books.rows.keys() > reference_rows.keys():
            return
        assert ended.reason == reference.reason
        assert stored_looks(self.directory) == stored_looks(self.folder / "reference")
        assert reference_rows.items() <= self.books.rows.items()


class CoupledLives(RecordedLives):
    """The same, compared trial by trial."""

    seeds = "coupled"
    objectives = ({"kind": "baseline", "baseline": "bob"}, {"kind": "pairs", "pairs": [["cyd", "bob"], ["ada", "cyd"]]})
    books_class = SharedBooks


def recorded_lives(histories: int, number: int = 0, machine: type[RecordedLives] = RecordedLives) -> None:
    chosen = settings(
        max_examples=histories,
        stateful_step_count=6,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(type(machine.__name__, (machine,), {})), settings=chosen)


@pytest.mark.parametrize("histories", sizes(4, 60))
def test_lives_among_recorded_models(histories: int) -> None:
    recorded_lives(histories=histories, number=1)


@pytest.mark.parametrize("histories", sizes(4, 60))
def test_lives_compared_trial_by_trial_with_recorded_models(histories: int) -> None:
    recorded_lives(histories=histories, number=2, machine=CoupledLives)
