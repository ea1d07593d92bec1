"""Recorded models over the whole life of a run: taken once, stored, never asked."""

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lives import QUESTIONS, SKILLS, Start, World
from typer.testing import CliRunner

from adaptive_eval.base.errors import ConfigError, RunChanged, StoreError
from adaptive_eval.cli import app
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Reason
from adaptive_eval.notes import ModelSettled, events_of_kind
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.next_steps import next_steps
from adaptive_eval.report.results_file import read_results
from adaptive_eval.report.stored import open_run, read_counts
from adaptive_eval.report.view import read_view
from adaptive_eval.running.beginning import load_starting_point
from adaptive_eval.running.regrade import regrade as regrade_stored
from adaptive_eval.show.changes import diff_runs
from adaptive_eval.show.markdown import markdown
from adaptive_eval.show.summary import untimed_findings
from adaptive_eval.study.pilot import read_pilot

NEW = "cyd"
OLD = ("ada", "bob")


class Folder:
    """A folder with questions, an earlier run of two models, and a run that places a third among them."""

    def __init__(self, path: Path) -> None:
        self.path, self.world = path, World()
        self.write_questions(QUESTIONS)
        self.settings: dict[str, Any] = {
            "questions": str(path / "questions.jsonl"),
            "sampling": {"temperature": 0.6, "max_tokens": 100},
            "grader": "exact",
            "trials": {"min": 2, "max": 4, "optimize": "cost"},
        }

    def write_questions(self, keys: tuple[str, ...], answer: str = "right") -> None:
        rows = ({"id": key, "prompt": f"ask {key}", "answer": answer} for key in keys)
        (self.path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def config(self, name: str, models: list[Mapping[str, object]], **changes: object) -> RunConfig:
        path = self.path / f"{name}.yaml"
        path.write_text(json.dumps({**self.settings, "models": models, **changes}))
        return load_config(path)

    def earlier(self, **changes: object) -> RunConfig:
        return self.config("old", [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in OLD], **changes)

    def placing(self, **changes: object) -> RunConfig:
        recorded = [{"name": name, "recorded": str(self.path / "old")} for name in OLD]
        new = {"name": NEW, "base_url": "http://127.0.0.1:9/v1"}
        return self.config("new", [*recorded, new], **{"objective": "place", **changes})

    def run(self, config: RunConfig, start: Start | None = None, name: str = "new") -> object:
        return self.world.run(config, self.path / name, Start() if start is None else start)


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


def test_outcomes_of_the_earlier_run_stand_and_only_the_new_model_is_asked(folder: Folder) -> None:
    assert folder.run(folder.placing()) is not None
    assert {request.model for request in folder.world.log} == {NEW}
    earlier, counts = read_counts(folder.path / "old"), read_counts(folder.path / "new")
    assert counts.recorded == set(OLD)
    for name in OLD:
        at, earlier_at = counts.roster.models.position(name), earlier.roster.models.position(name)
        assert counts.cells[at].tolist() == earlier.cells[earlier_at].tolist()
    results, before = read_results(folder.path / "new"), read_results(folder.path / "old")
    assert results is not None and before is not None
    rows, were = ({row.name: row for row in run_results.models} for run_results in (results, before))
    for name in OLD:
        assert rows[name].score == pytest.approx(were[name].score)
        assert (rows[name].recorded, rows[name].trials, rows[name].stored_trials) == ("old", were[name].trials, 0)
        assert rows[name].prior_depth == 0.0, "it is no R0"
    assert rows[NEW].recorded is None
    assert results.cost.trials == len(folder.world.log)
    assert results.cost.max_trials == 4 * len(QUESTIONS)
    for pair in results.pairs:
        assert NEW in (pair.first, pair.second)
    with open_run(folder.path / "new") as stored:
        assert {event.model for event in events_of_kind(stored.events, ModelSettled)} <= {NEW}


@pytest.mark.slow
def test_another_source_is_taken_only_where_it_has_the_same_outcomes(folder: Folder) -> None:
    folder.run(folder.placing())
    shutil.copytree(folder.path / "old", folder.path / "moved")
    moved = [{"name": name, "recorded": str(folder.path / "moved")} for name in OLD]
    models: list[Mapping[str, object]] = [*moved, {"name": NEW, "base_url": "http://127.0.0.1:9/v1"}]
    assert folder.run(folder.config("new", models, objective="place")) is not None
    folder.run(folder.earlier(seed=5), name="other")
    others = [{**model, "recorded": str(folder.path / "other")} for model in moved]
    with pytest.raises(ConfigError, match=r"has others; name the first again, or start a new run: another --run-dir"):
        folder.run(folder.config("new", [*others, models[-1]], objective="place"))


@pytest.mark.parametrize(("recorded", "max_trials"), [(4, 4), (40, 4)])
def test_a_gate_that_the_error_of_its_baseline_limits_is_not_advised_to_more_trials(
    folder: Folder, recorded: int, max_trials: int
) -> None:
    """No number of trials of the other model decides it; otherwise a larger `trials.max` helps."""
    baseline = [{"name": "bob", "base_url": "http://127.0.0.1:9/v1"}]
    trials, precise = {"min": recorded, "max": recorded}, {"kind": "precision", "half_width": 0.5}
    assert folder.run(folder.config("base", baseline, objective=precise, trials=trials), name="base") is not None
    gate = {"kind": "baseline", "baseline": "bob", "gate": True}
    models = [
        {"name": "bob", "recorded": str(folder.path / "base")},
        {"name": NEW, "base_url": "http://127.0.0.1:9/v1"},
    ]
    trials = {"min": 4, "max": max_trials, "optimize": "cost"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SKILLS, NEW, 0.55)
        ended = folder.run(folder.config("new", models, objective=gate, stopping={"delta": 0.02}, trials=trials))
    assert isinstance(ended, Ended) and ended.results is not None and ended.reason is Reason.OUT_OF_REACH
    (pair,) = ended.results.pairs
    *earlier, step = next_steps(replace(ended, arguments=("x.yaml", "--set", "trials.max=4")), "RUN")
    text = "\n".join(untimed_findings(ended.results, None))
    if recorded > max_trials:
        assert pair.trials_needed is not None and " trials.max to " in step.text
        assert not earlier and "recording" not in text + step.text
        return
    assert pair.trials_needed is None and "They need far more answers than this run" in text
    assert not earlier and step.text.startswith("the recorded answers of bob may be too few to decide this comparison")
    assert "delta" not in f"{step.text} {step.command}"


def refused(match: str) -> Any:
    return pytest.raises(ConfigError, match=match)


REFUSALS: dict[str, tuple[Callable[[Folder], RunConfig], str]] = {
    "no run": (
        lambda place: place.config(
            "new", [{"name": "ada", "recorded": "nowhere"}, {"name": NEW, "base_url": "http://x/v1"}]
        ),
        "nowhere has no run; name a run directory",
    ),
    "no such model": (
        lambda place: place.config(
            "new", [{"name": "eve", "recorded": str(place.path / "old")}, {"name": NEW, "base_url": "http://x/v1"}]
        ),
        "has no model 'eve'; its models are ada, bob: name one under `model`",
    ),
    "another rubric": (
        lambda place: place.placing(
            rubric={
                "categories": [
                    {"name": "right", "weight": 2, "when": {"is_correct": True}},
                    {"name": "wrong", "weight": 0},
                ]
            }
        ),
        "was graded by another rubric",
    ),
    "another grader": (lambda place: place.placing(grader="math"), "was graded by another grader"),
    "another prompt": (
        lambda place: place.placing(prompt="{prompt} Think."),
        "asked ada another text as question 'q0'; .* give the model the `prompt` that it had there",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_recordings_that_do_not_match_are_refused_with_what_to_do(folder: Folder, case: str) -> None:
    make, match = REFUSALS[case]
    with refused(match):
        load_starting_point(prepare(make(folder)), folder.path / "new")
    assert not (folder.path / "new").exists()


def test_a_recorded_model_may_have_a_prompt_of_its_own(folder: Folder) -> None:
    """Like other models: its prompts are those of the configuration."""
    recorded = [{"name": name, "recorded": str(folder.path / "old"), "prompt": "{prompt}"} for name in OLD]
    asked = {"name": NEW, "base_url": "http://127.0.0.1:9/v1"}
    config = folder.config("new", [*recorded, asked], objective="place", prompt="{prompt} Think.")
    assert load_starting_point(prepare(config), folder.path / "new").prepared.plan.bench.prior_counts is not None


def test_a_pilot_lacks_no_recorded_model(folder: Folder) -> None:
    """A forecast has its outcomes, wherever the pilot's come from."""
    folder.run(folder.placing())
    begun = load_starting_point(prepare(folder.placing()), folder.path / "new")
    pilot = read_pilot(folder.path / "new", begun.prepared)
    assert pilot.counts.any(axis=(1, 2)).tolist() == [False, False, True]
    assert pilot.remarks == ()


def test_other_questions_and_answer_keys_are_refused(folder: Folder) -> None:
    folder.write_questions((*QUESTIONS, "q9"))
    with refused("did not ask q9, and a recorded model needs outcomes of every question"):
        load_starting_point(prepare(folder.placing()), folder.path / "new")
    folder.write_questions(QUESTIONS, answer="wrong")
    with refused("was graded by another answer key to question 'q0'; grade it again"):
        load_starting_point(prepare(folder.placing()), folder.path / "new")
    folder.write_questions(QUESTIONS[:2])
    begun = load_starting_point(prepare(folder.placing()), folder.path / "new")
    assert begun.prepared.plan.bench.prior_counts is not None, "fewer questions than it has are well"


def test_a_model_that_was_recorded_cannot_become_one_that_is_asked(folder: Folder) -> None:
    folder.run(folder.placing())
    asked: list[Mapping[str, object]] = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in SKILLS]
    with pytest.raises(RunChanged):
        folder.run(folder.config("new", asked))


def test_regrading_by_another_key_is_refused_and_by_the_same_is_not(folder: Folder) -> None:
    folder.run(folder.placing())
    assert asyncio.run(regrade_stored(folder.path / "new", folder.placing())).changed == 0
    folder.write_questions(QUESTIONS, answer="wrong")
    with pytest.raises(StoreError, match=r"has recorded models \(ada, bob\)"):
        asyncio.run(regrade_stored(folder.path / "new", folder.placing()))


def test_readers_of_the_run_show_recorded_models_as_such(folder: Folder) -> None:
    folder.run(folder.placing())
    new, old = folder.path / "new", folder.path / "old"
    text = markdown(read_view(new))
    assert "ada (recorded)" in text and "recorded: old" in text and text.count("base_url:") == 1
    asked = text.partition("## Reproduce it")[2].partition("applied. For recorded models see the reports")[0]
    assert NEW in asked and not [name for name in OLD if name in asked], "what this run says of sampling is not of them"
    results = read_results(new)
    assert results is not None and {row.name for row in results.models if row.sampling} == {NEW}
    diff = diff_runs(read_view(old), read_counts(old), read_view(new), read_counts(new))
    assert diff.models == () and diff.caveats == (
        f"1 model only in the second run: {NEW}",
        f"2 models not compared, since one of the runs has recorded outcomes instead of asking: {', '.join(OLD)}",
    )
    assert not [change for change in diff.settings if "127.0.0.1/v1" in str(change)], "nobody's address"
    exported = CliRunner().invoke(app, ["export", str(new), "--format", "csv"]).stdout
    assert f"it does not hold the outcomes of {', '.join(OLD)}, which are recorded; export their run, too" in exported


def test_it_is_said_that_labels_correct_a_recorded_model_elsewhere(folder: Folder) -> None:
    shutil.rmtree(folder.path / "old")
    folder.run(folder.earlier(trials={"min": 8, "max": 8, "optimize": "cost"}), name="old")
    with open_run(folder.path / "old") as stored:
        answers = [f"{trial.model},{trial.question},{trial.trial},wrong" for trial in stored.reader.model_trials("ada")]
    labels = folder.path / "labels.csv"
    labels.write_text("\n".join(["model,question,trial,label", *answers]))
    label = CliRunner().invoke(app, ["label", str(folder.path / "old"), "--from", str(labels)])
    assert label.exit_code == 0, label.output
    folder.run(folder.placing())
    results = read_results(folder.path / "new")
    assert results is not None
    (caution,) = (caution for caution in results.warnings if caution.kind == "labels_elsewhere")
    assert "labels correct the score of ada; here" in caution.text
