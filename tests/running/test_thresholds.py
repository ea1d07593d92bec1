"""Thresholds that a rubric takes from another run: over HTTP, through extension, regrading and import."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from live_runs import ENDED, MODELS, Site
from stored_runs import events_in, stored_trials
from typer.testing import CliRunner, Result

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.notes import ThresholdsFrozen
from adaptive_eval.report.records import TrialRecord

FIRST = 3
"""Trials per question before the first look."""
SHORT = {
    "categories": [
        {"name": "short", "weight": 1, "when": {"is_correct": True, "completion_tokens": {"below": "p40"}}},
        {"name": "right", "weight": 0.7, "when": {"is_correct": True}},
        {"name": "wrong", "weight": 0},
    ],
}
BRIEF = {
    "categories": [
        {"name": "wrong and long", "weight": 0, "when": {"is_correct": False, "length_ratio": {"at_least": 1.2}}},
        {"name": "wrong", "weight": 0.2, "when": {"is_correct": False}},
        {"name": "right and long", "weight": 0.75, "when": {"length_ratio": {"at_least": 1.2}}},
        {"name": "right", "weight": 1},
    ],
}
QUICK = {"categories": [{"name": "a", "weight": 1, "when": {"latency": {"below": 3}}}, {"name": "b", "weight": 0}]}


def settings(**changes: object) -> dict[str, object]:
    return {"trials": {"min": FIRST, "max": 8}} | changes


def taking(rubric: dict[str, object], run: Path, **numbers: float) -> dict[str, object]:
    """The rubric with thresholds of a run."""
    return rubric | {"thresholds": {"from": str(run), **numbers}}


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def by_hand(trials: list[TrialRecord]) -> float:
    """The percentile, from the stored answers alone."""
    return float(np.percentile([trial.answer.completion_tokens for trial in trials if trial.trial < FIRST], 40))


def require_labels(trials: list[TrialRecord], threshold: float) -> None:
    for trial in trials:
        short = trial.answer.completion_tokens < threshold
        assert trial.category == (2 if not trial.signals["is_correct"] else 0 if short else 1)


@pytest.fixture
def pilot(site: Site) -> Path:
    """A finished run with the rubric `binary`."""
    directory = site.directory("pilot")
    assert site.run(site.write("pilot", **settings()), "--run-dir", str(directory)).exit_code in ENDED
    return directory


@pytest.mark.slow
def test_thresholds_stay_through_extension_and_go_to_a_later_run(site: Site, pilot: Path) -> None:
    rubric = taking(SHORT, pilot)
    assert site.run(site.write(**settings(rubric=rubric))).exit_code in ENDED
    (event,) = events_in(site.directory(), ThresholdsFrozen)
    longer = settings(rubric=rubric, trials={"min": FIRST, "max": 14}, stopping={"confidence": 0.999})
    assert site.run(site.write(**longer)).exit_code in ENDED
    assert len(events_in(site.directory(), ThresholdsFrozen)) == 1
    require_labels(stored_trials(site.directory()), event.values["completion_tokens p40"])

    later = site.write("later", **settings(rubric=taking(SHORT, site.directory()), seed=5))
    assert site.run(later, "--run-dir", str(site.directory("later"))).exit_code in ENDED
    (later_event,) = events_in(site.directory("later"), ThresholdsFrozen)
    assert later_event.values == event.values and later_event.run == "run"
    require_labels(stored_trials(site.directory("later")), event.values["completion_tokens p40"])


@pytest.mark.slow
def test_regrading_takes_thresholds_of_the_run_itself_and_rescoring_says_the_same(site: Site) -> None:
    site.run(site.write(**settings(rubric="binary", trials={"min": FIRST, "max": FIRST})))
    looked = command("rescore", site.directory(), "--rubric", write_rubric(site, SHORT), "--format", "json")
    changes = settings(rubric=taking(SHORT, site.directory()), trials={"min": FIRST, "max": 8})
    done = command("regrade", site.directory(), "--config", site.write(**changes))
    assert done.exit_code == ExitCode.REACHED, done.output
    trials, (event,) = stored_trials(site.directory()), events_in(site.directory(), ThresholdsFrozen)
    assert event.values == {"completion_tokens p40": pytest.approx(by_hand(trials))}
    require_labels(trials, by_hand(trials))
    assert looked.exit_code == 0, looked.output
    (_, short) = json.loads(looked.stdout)["rescoring"]["rubrics"]
    assert short["thresholds"] == event.values  # on the same trials, though the run had no such rubric
    counts = Counter((trial.model, trial.category) for trial in trials)
    assert {model["name"]: model["counts"] for model in short["models"]} == {
        name: [counts[name, category] for category in range(3)] for name in MODELS
    }
    assert site.run(site.write(**changes)).exit_code in ENDED
    require_labels(stored_trials(site.directory()), event.values["completion_tokens p40"])


def write_rubric(site: Site, rubric: dict[str, object]) -> Path:
    path = site.folder / "short.yaml"
    path.write_text(json.dumps({"rubric": rubric}))
    return path


@pytest.mark.slow
def test_lengths_are_relative_to_the_median_of_the_question_in_the_other_run(site: Site, pilot: Path) -> None:
    assert site.run(site.write(**settings(rubric=taking(BRIEF, pilot), seed=5))).exit_code in ENDED
    (event,), lengths = events_in(site.directory(), ThresholdsFrozen), defaultdict(list)
    for trial in stored_trials(pilot):
        if trial.trial < FIRST:
            lengths[trial.question].append(trial.answer.completion_tokens)
    assert event.medians == {key: np.median(values) for key, values in lengths.items()}
    for trial in stored_trials(site.directory()):
        ratio = trial.answer.completion_tokens / event.medians[trial.question]
        assert trial.signals["length_ratio"] == pytest.approx(ratio)
        assert trial.category == 2 * bool(trial.signals["is_correct"]) + (ratio < 1.2)
    assert "the median length of the answers to each of 8 questions" in site.report()
    assert command("rescore", site.directory()).exit_code == 0


@pytest.mark.slow
def test_a_run_that_cannot_give_thresholds_is_refused(site: Site, pilot: Path) -> None:
    confidence = {"name": "conf_wrong_penalty"}
    sampling = {"temperature": 0.6, "max_tokens": 2000, "logprobs": True}
    begun = site.directory("begun")
    site.run(site.write("begun", **settings(budget={"trials": 30})), "--run-dir", str(begun))
    for rubric, message in (
        (taking(SHORT, Path("nowhere")), "nowhere has no run"),
        (taking(SHORT, begun), "begun has no complete first round; resume that run first"),
        (taking(confidence, pilot), "low_wrong cannot be fitted: no trial has completion_bpt and is wrong; name"),
    ):
        refused = site.run(site.write(**settings(rubric=rubric, sampling=sampling)))
        assert refused.exit_code == ExitCode.CONFIGURATION, message
        assert message in " ".join(refused.output.split())
        assert not site.directory().exists()


@pytest.mark.parametrize(
    ("rubric", "message"),
    [
        (SHORT, "rubric.thresholds must be given: the rubric compares with completion_tokens p40"),
        ({"name": "efficiency_adjusted"}, "compares with len_p33, len_p66"),
        (BRIEF, "compares with length_ratio"),
        ({"name": "binary", "thresholds": {"from": "runs/old"}}, "rubric.thresholds.from has nothing to fit"),
        (SHORT | {"thresholds": {"completion_tokens p40": "runs/old"}}, "a number under every other name"),
        (SHORT | {"thresholds": {"from": 0.3}}, "must have a run directory under `from`"),
        (SHORT | {"thresholds": {"high_p40": 0.3}}, "must not have high_p40; the names are from, high"),
        (QUICK, "must not use latency"),
    ],
)
def test_a_rubric_without_usable_thresholds_is_refused(site: Site, rubric: dict[str, object], message: str) -> None:
    refused = site.run(site.write(**settings(rubric=rubric)))
    assert refused.exit_code == ExitCode.CONFIGURATION and message in " ".join(refused.output.split())
