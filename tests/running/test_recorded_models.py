"""Recorded models over the whole life of a run, and gates against last night's recorded run with the same seeds."""

import asyncio
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from live_runs import models_at
from lives import QUESTIONS, SKILLS, Fate, Start, World
from stored_runs import events_in, stored_results, stored_trials

from adaptive_eval.base.errors import ConfigError, ExitCode, RunChanged, StoreError
from adaptive_eval.base.seeds import hashed_base
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import PreparedRun, prepare
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Reason
from adaptive_eval.exchange.configure import ImportRequest
from adaptive_eval.notes import OutcomesRecorded
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.results import Results
from adaptive_eval.report.stored import read_counts
from adaptive_eval.report.view import read_view
from adaptive_eval.running.beginning import load_starting_point
from adaptive_eval.running.regrade import regrade as regrade_stored
from adaptive_eval.show.changes import diff_runs
from adaptive_eval.show.markdown import markdown
from adaptive_eval.show.summary import untimed_findings
from adaptive_eval.study.pilot import read_pilot

NEW = "cyd"
OLD = ("ada", "bob")
ADDRESS = "http://127.0.0.1:9/v1"
ASKED: Mapping[str, object] = {"name": NEW, "base_url": ADDRESS}


class Place:
    """A folder with questions and runs."""

    def __init__(self, path: Path, keys: tuple[str, ...] = QUESTIONS) -> None:
        self.path, self.world = path, World()
        self.write_questions(keys)

    def write_questions(self, keys: tuple[str, ...], answer: str = "right") -> None:
        rows = ({"id": key, "prompt": f"ask {key}", "answer": answer} for key in keys)
        (self.path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def config(self, name: str, models: list[Mapping[str, object]], **changes: object) -> RunConfig:
        settings = {
            "questions": str(self.path / "questions.jsonl"),
            "sampling": {"temperature": 0.6, "max_tokens": 100},
            "grader": "exact",
            "trials": {"min": 2, "max": 4, "optimize": "cost"},
        }
        path = self.path / f"{name}.yaml"
        path.write_text(json.dumps({**settings, "models": models, **changes}))
        return load_config(path)

    def run(self, config: RunConfig, start: Start | None = None, name: str = "new") -> Ended | None:
        return self.world.run(config, self.path / name, Start() if start is None else start)


class Folder(Place):
    """An earlier run of two models, and a run that places a third among them."""

    def earlier(self, **changes: object) -> RunConfig:
        return self.config("old", [{"name": name, "base_url": ADDRESS} for name in OLD], **changes)

    def placing(self, **changes: object) -> RunConfig:
        recorded = [{"name": name, "recorded": str(self.path / "old")} for name in OLD]
        return self.config("new", **{"models": [*recorded, ASKED], "objective": "place", **changes})


@pytest.fixture(scope="module")
def earlier_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be copied."""
    made = Folder(tmp_path_factory.mktemp("earlier"))
    assert made.run(made.earlier(), name="old") is not None
    return made.path / "old"


@pytest.fixture
def folder(tmp_path: Path, earlier_run: Path) -> Folder:
    made = Folder(tmp_path)
    shutil.copytree(earlier_run, tmp_path / "old")
    return made


@pytest.mark.slow
def test_another_source_is_taken_only_where_it_has_the_same_outcomes(folder: Folder) -> None:
    folder.run(folder.placing())
    shutil.copytree(folder.path / "old", folder.path / "moved")
    moved = [{"name": name, "recorded": str(folder.path / "moved")} for name in OLD]
    assert folder.run(folder.placing(models=[*moved, ASKED])) is not None
    folder.run(folder.earlier(seed=5), name="other")
    others = [{**model, "recorded": str(folder.path / "other")} for model in moved]
    with refused(r"has others; name the first again, or start a new run: another --run-dir"):
        folder.run(folder.placing(models=[*others, ASKED]))


def refused(match: str) -> Any:
    return pytest.raises(ConfigError, match=match)


def begun(place: Place, config: RunConfig) -> PreparedRun:
    """What a run would begin with."""
    return load_starting_point(prepare(config), place.path / "new").prepared


RIGHT = {"name": "right", "weight": 2, "when": {"is_correct": True}}
RIGHT_OR_WRONG = {"categories": [RIGHT, {"name": "wrong", "weight": 0}]}
NOWHERE: Mapping[str, object] = {"name": "ada", "recorded": "nowhere"}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"models": [NOWHERE, ASKED]}, "nowhere has no run; name a run directory"),
        ({"models": [{"name": "eve", "recorded": "old"}, ASKED]}, "no model 'eve'; its models are ada, bob: name one"),
        ({"rubric": RIGHT_OR_WRONG}, "was graded by another rubric"),
        (
            {"grader": "math"},
            "was graded by another grader, .*; put the grader and answer keys .* into that of the other",
        ),
        ({"prompt": "{prompt} Think."}, "asked ada another text as question 'q0'; .* give the model the `prompt` that"),
    ],
)
def test_recordings_that_do_not_match_are_refused_with_what_to_do(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], match: str
) -> None:
    monkeypatch.chdir(folder.path)
    with refused(match):
        begun(folder, folder.placing(**changes))
    assert not (folder.path / "new").exists()


def test_a_recorded_model_may_have_a_prompt_of_its_own(folder: Folder) -> None:
    """Like other models: its prompts are those of the configuration."""
    recorded = [{"name": name, "recorded": str(folder.path / "old"), "prompt": "{prompt}"} for name in OLD]
    config = folder.placing(models=[*recorded, ASKED], prompt="{prompt} Think.")
    assert begun(folder, config).plan.bench.prior_counts is not None


def test_other_questions_and_answer_keys_are_refused(folder: Folder) -> None:
    folder.write_questions((*QUESTIONS, "q9"))
    with refused("did not ask q9, and a recorded model needs outcomes of every question"):
        begun(folder, folder.placing())
    folder.write_questions(QUESTIONS, answer="wrong")
    with refused("was graded by another answer key to question 'q0'; put the grader and answer keys of this"):
        begun(folder, folder.placing())
    folder.write_questions(QUESTIONS[:2])
    assert begun(folder, folder.placing()).plan.bench.prior_counts is not None, "fewer questions than it has are well"


def test_a_recorded_model_is_neither_asked_later_nor_regraded_by_another_key(folder: Folder) -> None:
    folder.run(folder.placing())
    with pytest.raises(RunChanged):
        folder.run(folder.config("new", models_at(ADDRESS, *SKILLS)))
    assert asyncio.run(regrade_stored(folder.path / "new", folder.placing())).changed == 0
    folder.write_questions(QUESTIONS, answer="wrong")
    with pytest.raises(StoreError, match=r"as recorded models \(ada, bob\)"):
        asyncio.run(regrade_stored(folder.path / "new", folder.placing()))


def test_the_earlier_run_graded_again_by_this_grader_is_taken(folder: Folder) -> None:
    with refused("put the grader and answer keys of this configuration into that of the other run"):
        begun(folder, folder.placing(grader="contains"))
    asyncio.run(regrade_stored(folder.path / "old", folder.earlier(grader="contains")))
    assert begun(folder, folder.placing(grader="contains")).plan.bench.prior_counts is not None


def test_outcomes_of_the_earlier_run_stand_and_readers_show_them_as_such(folder: Folder) -> None:
    folder.run(folder.placing())
    assert {request.model for request in folder.world.log} == {NEW}
    new, old = folder.path / "new", folder.path / "old"
    earlier, counts = read_counts(old), read_counts(new)
    assert counts.recorded == set(OLD)
    for name in OLD:
        at, earlier_at = counts.roster.models.position(name), earlier.roster.models.position(name)
        assert counts.cells[at].tolist() == earlier.cells[earlier_at].tolist()
    pilot = read_pilot(new, begun(folder, folder.placing()))
    assert pilot.counts.any(axis=(1, 2)).tolist() == [False, False, True] and pilot.remarks == ()
    text = markdown(read_view(new))
    assert "ada (recorded)" in text and "recorded: old" in text and text.count("base_url:") == 1
    asked = text.partition("## Reproduce it")[2].partition("applied. For recorded models see the reports")[0]
    assert NEW in asked and not [name for name in OLD if name in asked], "what this run says of sampling is not of them"
    results = stored_results(new)
    assert {row.name for row in results.models if row.sampling} == {NEW}
    rows = {row.name: (row.recorded, row.stored_trials, row.prior_depth) for row in results.models}
    assert rows == {name: ("old", 0, 0.0) for name in OLD} | {NEW: (None, rows[NEW][1], 0.0)}, "it is no R0"
    assert results.cost.trials == len(folder.world.log) and results.cost.max_trials == 4 * len(QUESTIONS)
    assert all(NEW in (pair.first, pair.second) for pair in results.pairs)
    diff = diff_runs(read_view(old), read_counts(old), read_view(new), read_counts(new))
    assert diff.models == () and diff.caveats == (
        f"1 model only in the second run: {NEW}",
        f"2 models not compared, since one of the runs has recorded outcomes instead of asking: {', '.join(OLD)}",
    )
    assert not [change for change in diff.settings if "127.0.0.1/v1" in str(change)], "nobody's address"
    exported = typed("export", new, "--format", "csv").stdout
    assert f"it does not hold the outcomes of {', '.join(OLD)}, which are recorded; export their run, too" in exported


def test_it_is_said_that_labels_correct_a_recorded_model_elsewhere(folder: Folder) -> None:
    shutil.rmtree(folder.path / "old")
    folder.run(folder.earlier(trials={"min": 8, "max": 8, "optimize": "cost"}), name="old")
    trials = [trial for trial in stored_trials(folder.path / "old") if trial.model == "ada"]
    answers = [f"{trial.model},{trial.question},{trial.trial},wrong" for trial in trials]
    labels = folder.path / "labels.csv"
    labels.write_text("\n".join(["model,question,trial,label", *answers]))
    assert typed("label", folder.path / "old", "--from", labels).exit_code == 0
    folder.run(folder.placing())
    again = [{"name": name, "recorded": str(folder.path / "new")} for name in OLD]
    folder.run(folder.placing(models=[*again, ASKED]), name="newer")
    for name in ("new", "newer"):
        cautions = stored_results(folder.path / name).warnings
        (caution,) = (caution for caution in cautions if caution.kind == "labels_elsewhere")
        assert "labels correct the score of ada; here" in caution.text


TWELVE = tuple(f"q{number}" for number in range(12))
BUILDS = {"prod": 0.6, "copy": 0.6, "worse": 0.45, "near": 0.55}
RECORDED = 30


def correlated(model: str, question: str, seed: int) -> str:
    """Near copies: whether an answer is right depends on question, seed and skill alone."""
    number = hashed_base(seed, "", question) / 2**31
    return "right" if number < SKILLS[model] else "wrong"


class Nights(Place):
    """The run of last night, and gates against it."""

    def record(self, name: str = "night", models: tuple[str, ...] = ("prod",), **changes: Any) -> Path:
        settings: dict[str, Any] = {
            "objective": {"kind": "precision", "half_width": 0.5},
            "trials": {"min": RECORDED, "max": RECORDED, "seeds": "coupled"},
        }
        assert self.run(self.config(name, models_at(ADDRESS, *models), **settings | changes), name=name) is not None
        return self.path / name

    def gate(self, build: str = "copy", night: str = "night", **changes: Any) -> RunConfig:
        settings: dict[str, Any] = {
            "objective": {"kind": "baseline", "baseline": "prod", "gate": True},
            "stopping": {"delta": 0.05},
            "trials": {"min": 4, "max": RECORDED, "seeds": "coupled", "optimize": "cost"},
        }
        models = [{"name": "prod", "recorded": str(self.path / night)}, {"name": build, "base_url": ADDRESS}]
        return self.config("new", changes.pop("models", models), **settings | changes)

    def asked(self) -> set[tuple[str, str, int]]:
        return {(request.model, request.question, request.seed) for request in self.world.log}

    def results(self, name: str = "new") -> Results:
        return stored_results(self.path / name)


@pytest.fixture
def first_nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Before anything is recorded: models that are near copies."""
    monkeypatch.setattr("lives.server_answer", correlated)
    for name, skill in BUILDS.items():
        monkeypatch.setitem(SKILLS, name, skill)
    return Nights(tmp_path, TWELVE)


@pytest.fixture
def nights(first_nights: Nights) -> Nights:
    first_nights.record()
    first_nights.world.log.clear()
    return first_nights


ENDS = {"PASS": ExitCode.REACHED, "FAIL": ExitCode.WORSE, "UNDECIDED": ExitCode.SPENT}


@pytest.mark.parametrize(("build", "outcome"), [*zip(("copy", "worse", "near"), ENDS, strict=True)])
def test_a_gate_against_last_night(nights: Nights, build: str, outcome: str) -> None:
    ended = nights.run(nights.gate(build))
    assert ended is not None and ended.exit_code == ENDS[outcome]
    results = nights.results()
    assert [row.outcome for row in results.gate] == [outcome]
    (pair,) = results.pairs
    assert pair.by_trial and pair.variance_by_trial is not None and pair.variance_by_trial < 0.5
    n = read_counts(nights.path / "new").of([build], TWELVE).cells.sum(axis=-1)
    assert {request.model for request in nights.world.log} == {build}
    assert n.max() <= RECORDED and (n.max() < RECORDED / 2 or outcome == "UNDECIDED")
    seeds = {(question, seed) for _, question, seed in nights.asked()}
    assert seeds == {(key, hashed_base(0, "", key) + i) for key in TWELVE for i in range(n.max())}
    right = [sum(correlated(name, *at) == "right" for at in seeds) for name in (build, "prod")]
    assert pair.difference is not None
    difference = abs(right[0] - right[1]) / len(seeds)
    assert abs(pair.difference) == pytest.approx(difference), "of the trials that both have"
    assert "on the same trials" in "\n".join(untimed_findings(results, None))


def refuses(nights: Nights, config: RunConfig, match: str) -> None:
    with refused(match):
        begun(nights, config)
    assert not (nights.path / "new").exists()


def test_a_run_with_other_seeds_is_refused_with_what_to_do(nights: Nights) -> None:
    message = "night asked with the seed 0, and the seed of this run is 5: set `seed: 0` here"
    refuses(nights, nights.gate(seed=5), message)
    for seeds in ("hashed", "consecutive"):
        nights.record(seeds, trials={"min": 2, "max": 2, "seeds": seeds})
        message = r"record it again with `trials: \{seeds: coupled\}` and `seed: 0`, or"
        refuses(nights, nights.gate(night=seeds), message)
    refuses(nights, nights.gate(prompt="{prompt} Think."), "asked prod another text")
    refuses(nights, nights.gate(night="nowhere"), "nowhere has no run")
    trials = {"min": 4, "max": RECORDED, "seeds": "hashed"}
    assert load_starting_point(prepare(nights.gate(trials=trials)), nights.path / "new").trials is None


def test_imported_trials_have_seeds_of_their_own(nights: Nights) -> None:
    rows = [{"model": "prod", "question": key, "text": "right"} for key in TWELVE]
    (nights.path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    objective, trials = {"kind": "precision", "half_width": 0.5}, {"min": 1, "max": 2, "seeds": "coupled"}
    config = nights.config("imported", models_at(ADDRESS, "prod"), objective=objective, trials=trials)
    request = ImportRequest([str(nights.path / "log.jsonl")], nights.path / "imported", config)
    assert nights.world.import_logs(request, Start())
    nights.run(config, name="imported")
    refuses(nights, nights.gate(night="imported"), "lacks trials with the seeds that this run shares")


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
    assert len(nights.world.log) <= RECORDED * len(TWELVE)
    text = "\n".join(untimed_findings(nights.results(), None))
    assert "needs more than this run can give: " in text, "the recording has no more"


@pytest.mark.slow
def test_recorded_trials_are_passed_on_from_night_to_night(nights: Nights) -> None:
    """The gate of last night is the recording of tonight: its build, and the baseline that it took itself."""
    nights.run(nights.gate("copy", objective={"kind": "baseline", "baseline": "prod"}, stopping={"delta": 0.0}))
    models = [{"name": name, "recorded": str(nights.path / "new")} for name in ("prod", "copy")]
    models.append({"name": "near", "base_url": ADDRESS})
    nights.world.log.clear()
    assert nights.run(nights.gate(models=models), name="next") is not None
    assert {request.model for request in nights.world.log} == {"near"}
    events = events_in(nights.path / "next", OutcomesRecorded)
    assert {(event.model, event.run, event.shared_seed) for event in events} == {
        ("prod", "night", 0),
        ("copy", "new", 0),
    }
    assert all(pair.by_trial for pair in nights.results("next").pairs)
    with refused("asked with the seed 0"):
        load_starting_point(prepare(nights.gate(models=models, seed=3)), nights.path / "another")


@pytest.mark.slow
def test_a_recorded_model_that_joins_is_compared_with_the_trials_that_are_there(first_nights: Nights) -> None:
    nights = first_nights
    night = str(nights.record(models=("prod", "copy")))
    recorded = [{"name": name, "recorded": night} for name in ("prod", "copy")]
    models = [recorded[0], {"name": "near", "base_url": ADDRESS}, recorded[1]]
    changes: dict[str, Any] = {"objective": {"kind": "pairs", "pairs": [["near", "prod"]]}, "stopping": {}}
    nights.run(nights.gate(models=models[:2], **changes))
    (before,) = nights.results().pairs
    nights.run(nights.gate(models=models, **changes))
    after = nights.results().pairs
    assert [pair.by_trial for pair in after] == [True] and after[0].z == before.z
    changes["objective"] = {"kind": "pairs", "pairs": [["near", "copy"], ["prod", "copy"]]}
    nights.run(nights.gate(models=models, **changes))
    assert all(pair.by_trial for pair in nights.results().pairs)
    (of_copies,) = (pair for pair in nights.results().pairs if {pair.first, pair.second} == {"prod", "copy"})
    assert of_copies.difference == pytest.approx(0.0)


def test_answers_without_a_grade_keep_their_places(first_nights: Nights) -> None:
    nights = first_nights
    nights.world.broken = {"q3"}
    nights.record(trials={"min": 4, "max": 4, "seeds": "coupled"})
    nights.world.broken = set()
    refuses(nights, nights.gate(), "no graded answer of it to question q3")
