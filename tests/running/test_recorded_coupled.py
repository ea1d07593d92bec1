"""A gate against last night's recorded run, with the same seeds: what it asks, when it is refused, how it goes on."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from lives import SKILLS, Fate, Start, World

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.base.seeds import hashed_base
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Reason
from adaptive_eval.exchange.configure import ImportRequest
from adaptive_eval.notes import OutcomesRecorded, events_of_kind
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.results import Results
from adaptive_eval.report.results_file import read_results
from adaptive_eval.report.stored import open_run, read_counts
from adaptive_eval.running.beginning import load_starting_point
from adaptive_eval.show.summary import untimed_findings

QUESTIONS = tuple(f"q{number}" for number in range(12))
BUILDS = {"prod": 0.6, "copy": 0.6, "worse": 0.45, "near": 0.55}
RECORDED = 30
ADDRESS = "http://127.0.0.1:9/v1"


def correlated(model: str, question: str, seed: int) -> str:
    """Near copies: whether an answer is right depends on question, seed and skill alone."""
    number = hashed_base(seed, "", question) / 2**31
    return "right" if number < SKILLS[model] else "wrong"


@pytest.fixture(autouse=True)
def near_copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("lives.server_answer", correlated)
    for name, skill in BUILDS.items():
        monkeypatch.setitem(SKILLS, name, skill)
    yield


class Nights:
    """A folder with questions, the run of last night, and gates against it."""

    def __init__(self, path: Path) -> None:
        self.path, self.world = path, World()
        rows = ({"id": key, "prompt": f"ask {key}", "answer": "right"} for key in QUESTIONS)
        (path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def config(self, name: str, models: list[Mapping[str, object]], **changes: Any) -> RunConfig:
        settings = {
            "questions": str(self.path / "questions.jsonl"),
            "sampling": {"temperature": 0.6, "max_tokens": 100},
            "grader": "exact",
        }
        path = self.path / f"{name}.yaml"
        path.write_text(json.dumps({**settings, "models": models, **changes}))
        return load_config(path)

    def record(self, name: str = "night", models: tuple[str, ...] = ("prod",), **changes: Any) -> Path:
        settings: dict[str, Any] = {
            "objective": {"kind": "precision", "half_width": 0.5},
            "trials": {"min": RECORDED, "max": RECORDED, "seeds": "coupled"},
        }
        asked: list[Mapping[str, object]] = [{"name": model, "base_url": ADDRESS} for model in models]
        assert self.run(self.config(name, asked, **settings | changes), name=name) is not None
        return self.path / name

    def gate(self, build: str = "copy", night: str = "night", **changes: Any) -> RunConfig:
        settings: dict[str, Any] = {
            "objective": {"kind": "baseline", "baseline": "prod", "gate": True},
            "stopping": {"delta": 0.05},
            "trials": {"min": 4, "max": RECORDED, "seeds": "coupled", "optimize": "cost"},
        }
        models = [{"name": "prod", "recorded": str(self.path / night)}, {"name": build, "base_url": ADDRESS}]
        return self.config("gate", changes.pop("models", models), **settings | changes)

    def run(self, config: RunConfig, start: Start | None = None, name: str = "gate") -> Ended | None:
        return self.world.run(config, self.path / name, Start() if start is None else start)

    def asked(self) -> set[tuple[str, str, int]]:
        return {(request.model, request.question, request.seed) for request in self.world.log}

    def results(self, name: str = "gate") -> Results:
        results = read_results(self.path / name)
        assert results is not None
        return results


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    made = Nights(tmp_path)
    made.record()
    made.world.log.clear()
    return made


@pytest.mark.parametrize(
    ("build", "changes", "outcome", "code"),
    [
        ("copy", {}, "PASS", ExitCode.REACHED),
        ("worse", {}, "FAIL", ExitCode.WORSE),
        ("near", {"stopping": {"delta": 0.05}}, "UNDECIDED", ExitCode.SPENT),
    ],
)
def test_a_gate_against_last_night(
    nights: Nights, build: str, changes: dict[str, Any], outcome: str, code: ExitCode
) -> None:
    ended = nights.run(nights.gate(build, **changes))
    assert ended is not None and ended.exit_code == code
    results = nights.results()
    assert [row.outcome for row in results.gate] == [outcome]
    (pair,) = results.pairs
    assert pair.by_trial and pair.variance_by_trial is not None and pair.variance_by_trial < 0.5
    n = read_counts(nights.path / "gate").of([build], QUESTIONS).cells.sum(axis=-1)
    assert {request.model for request in nights.world.log} == {build}
    assert n.max() <= RECORDED and (n.max() < RECORDED / 2 or outcome == "UNDECIDED")
    seeds = {(question, seed) for _, question, seed in nights.asked()}
    assert seeds == {(key, hashed_base(0, "", key) + i) for key in QUESTIONS for i in range(n.max())}
    shares = [
        sum(correlated(name, question, seed) == "right" for question, seed in seeds) / len(seeds)
        for name in (build, "prod")
    ]
    assert pair.difference is not None
    assert abs(pair.difference) == pytest.approx(abs(shares[0] - shares[1])), "of the trials that both have"
    assert "on the same trials" in "\n".join(untimed_findings(results, None))


def test_without_correlation_it_is_the_gate_without_shared_seeds(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lives.server_answer", lambda model, *about: correlated("copy", f"{model} {about[0]}", about[1])
    )
    nights.run(nights.gate())
    (pair,) = nights.results().pairs
    assert not pair.by_trial and pair.variance_by_trial is None
    recorded = next(row for row in nights.results().models if row.name == "prod")
    assert pair.difference is not None and recorded.score is not None


def refused(nights: Nights, config: RunConfig, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        load_starting_point(prepare(config), nights.path / "gate")
    assert not (nights.path / "gate").exists()


def test_a_run_with_other_seeds_is_refused_with_what_to_do(nights: Nights) -> None:
    refused(
        nights, nights.gate(seed=5), "night asked with the seed 0, and the seed of this run is 5: set `seed: 0` here"
    )
    for seeds in ("hashed", "consecutive"):
        nights.record(seeds, trials={"min": 2, "max": 2, "seeds": seeds})
        refused(
            nights, nights.gate(night=seeds), r"record it again with `trials: \{seeds: coupled\}` and `seed: 0`, or"
        )
    refused(nights, nights.gate(prompt="{prompt} Think."), "asked prod another text")
    refused(nights, nights.gate(night="nowhere"), "nowhere has no run")
    trials = {"min": 4, "max": RECORDED, "seeds": "hashed"}
    assert load_starting_point(prepare(nights.gate(trials=trials)), nights.path / "gate").trials is None


def test_imported_trials_have_seeds_of_their_own(nights: Nights) -> None:
    rows = [{"model": "prod", "question": key, "text": "right"} for key in QUESTIONS]
    (nights.path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    models: list[Mapping[str, object]] = [{"name": "prod", "base_url": ADDRESS}]
    objective, trials = {"kind": "precision", "half_width": 0.5}, {"min": 1, "max": 2, "seeds": "coupled"}
    config = nights.config("imported", models, objective=objective, trials=trials)
    request = ImportRequest([str(nights.path / "log.jsonl")], nights.path / "imported", config)
    assert nights.world.import_logs(request, Start())
    nights.run(config, name="imported")
    refused(nights, nights.gate(night="imported"), "lacks trials with the seeds that this run shares")


@pytest.mark.slow
def test_a_gate_survives_kills_and_the_loss_of_the_recording(nights: Nights) -> None:
    config = nights.gate("near")
    reference = World().run(config, nights.path / "reference", Start())
    assert nights.run(config, Start(Fate.KILL, 60)) is None
    shutil.rmtree(nights.path / "night")
    for at in (90, 200):
        nights.run(config, Start(Fate.KILL, at))
    ended = nights.run(config)
    assert reference is not None and ended is not None and ended.reason is reference.reason
    (pair,), (expected,) = nights.results().pairs, nights.results("reference").pairs
    assert (pair.z, pair.verdict, pair.by_trial) == (expected.z, expected.verdict, True)
    assert {request.model for request in nights.world.log} == {"near"}


@pytest.mark.slow
def test_a_gate_goes_on_with_more_trials_as_far_as_the_recording_goes(nights: Nights) -> None:
    trials = {"min": 4, "max": 6, "seeds": "coupled", "optimize": "cost"}
    short = nights.run(nights.gate("near", trials=trials))
    assert short is not None and short.reason is Reason.OUT_OF_REACH
    before = len(nights.world.log)
    longer = nights.run(nights.gate("near", trials={**trials, "max": 20}))
    assert longer is not None and len(nights.world.log) > before
    assert len(nights.asked()) == len(nights.world.log), "nothing is asked twice"
    nights.run(nights.gate("near", trials={**trials, "max": 200}))
    assert len(nights.world.log) <= RECORDED * len(QUESTIONS)
    text = "\n".join(untimed_findings(nights.results(), None))
    assert "They need far more answers than this run" in text, "the recording has no more"


@pytest.mark.slow
def test_recorded_trials_are_passed_on_from_night_to_night(nights: Nights) -> None:
    """The gate of last night is the recording of tonight: its build, and the baseline that it took itself."""
    nights.run(nights.gate("copy", objective={"kind": "baseline", "baseline": "prod"}, stopping={"delta": 0.0}))
    models = [{"name": name, "recorded": str(nights.path / "gate")} for name in ("prod", "copy")]
    models.append({"name": "near", "base_url": ADDRESS})
    nights.world.log.clear()
    assert nights.run(nights.gate(models=models), name="next") is not None
    assert {request.model for request in nights.world.log} == {"near"}
    with open_run(nights.path / "next") as stored:
        events = {event.model: event for event in events_of_kind(stored.events, OutcomesRecorded)}
    assert {name: (event.run, event.shared_seed) for name, event in events.items()} == {
        "prod": ("night", 0),
        "copy": ("gate", 0),
    }
    assert all(pair.by_trial for pair in nights.results("next").pairs)
    other_seed = nights.gate(models=models, seed=3)
    with pytest.raises(ConfigError, match="asked with the seed 0"):
        load_starting_point(prepare(other_seed), nights.path / "another")


@pytest.mark.slow
def test_a_recorded_model_that_joins_is_compared_with_the_trials_that_are_there(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    nights.record(models=("prod", "copy"))
    models = [
        {"name": "prod", "recorded": str(tmp_path / "night")},
        {"name": "near", "base_url": ADDRESS},
        {"name": "copy", "recorded": str(tmp_path / "night")},
    ]
    changes: dict[str, Any] = {"objective": {"kind": "pairs", "pairs": [["near", "prod"]]}, "stopping": {}}
    nights.run(nights.gate(models=models[:2], **changes))
    (before,) = nights.results().pairs
    nights.run(nights.gate(models=models, **changes))
    after = nights.results().pairs
    assert [pair.by_trial for pair in after] == [True] and after[0].z == before.z
    changes["objective"] = {"kind": "pairs", "pairs": [["near", "copy"], ["prod", "copy"]]}
    nights.run(nights.gate(models=models, **changes))
    assert all(pair.by_trial for pair in nights.results().pairs)
    assert {frozenset((pair.first, pair.second)): pair.difference for pair in nights.results().pairs}[
        frozenset(("prod", "copy"))
    ] == pytest.approx(0.0)


def test_answers_without_a_grade_keep_their_places(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    nights.world.broken = {"q3"}
    nights.record(trials={"min": 4, "max": 4, "seeds": "coupled"})
    nights.world.broken = set()
    with pytest.raises(ConfigError, match="no graded answer of it to question q3"):
        load_starting_point(prepare(nights.gate()), tmp_path / "gate")
