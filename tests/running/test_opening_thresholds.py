"""Thresholds that are fitted on a run's opening: over HTTP, through kills, faults, regrading, import and extension."""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from contrary_server import Asked, Said, answer, listening, write_config
from live_runs import ENDED, MODELS, Found, Site, kill, small_world, wait_for_trials
from patient_time import HANGS
from typer.testing import CliRunner, Result

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency
from adaptive_eval.store import Event, RunReader, ThresholdsFrozen, TrialRecord, events_of_kind
from adaptive_eval.store.records import AWAITS_THRESHOLDS

ROOT = Path(__file__).resolve().parents[2]
OPENING = 3
SHORT = {
    "fit": "opening",
    "categories": [
        {"name": "short", "weight": 1, "when": {"is_correct": True, "completion_tokens": {"at_most": "p40"}}},
        {"name": "right", "weight": 0.7, "when": {"is_correct": True}},
        {"name": "wrong", "weight": 0},
    ],
}
BRIEF = {
    "fit": "opening",
    "categories": [
        {"name": "wrong and long", "weight": 0, "when": {"is_correct": False, "length_ratio": {"above": 1.2}}},
        {"name": "wrong", "weight": 0.2, "when": {"is_correct": False}},
        {"name": "right and long", "weight": 0.75, "when": {"length_ratio": {"above": 1.2}}},
        {"name": "right", "weight": 1},
    ],
}
QUICK = {"categories": [{"name": "a", "weight": 1, "when": {"latency": {"below": 3}}}, {"name": "b", "weight": 0}]}


@pytest.fixture(scope="module")
def leisurely() -> Iterator[str]:
    """A server whose openings can be interrupted."""
    slow = replace(small_world(), latency=Latency(median=0.15))
    with serving(SimulatedServer(slow, judge=SimulatedJudge())) as url:
        yield url


def settings(url: str | None = None, **changes: object) -> dict[str, object]:
    here: dict[str, object] = {} if url is None else {"models": [{"name": name, "base_url": url} for name in MODELS]}
    return here | {"rubric": SHORT, "trials": {"min": OPENING, "max": 8}} | changes


def stored(directory: Path) -> list[TrialRecord]:
    with closing(RunReader.open(directory)) as reader:
        return list(reader.trials())


def events(directory: Path) -> list[Event]:
    with closing(RunReader.open(directory)) as reader:
        return reader.events()


def frozen(directory: Path) -> list[ThresholdsFrozen]:
    return events_of_kind(events(directory), ThresholdsFrozen)


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def report(directory: Path) -> str:
    told = command("report", directory, "--format", "md", "--output", "-")
    assert told.exit_code == 0, told.output
    return told.stdout


def by_hand(trials: list[TrialRecord]) -> float:
    """The percentile, from the stored answers alone."""
    return float(np.percentile([one.answer.completion_tokens for one in trials if one.trial < OPENING], 40))


def require_labels(trials: list[TrialRecord], threshold: float) -> None:
    for one in trials:
        short = one.answer.completion_tokens <= threshold
        assert one.category == (2 if not one.signals["is_correct"] else 0 if short else 1)


def test_the_opening_is_labelled_by_its_own_percentile_before_the_first_look(site: Site) -> None:
    assert site.run(site.write(**settings())).exit_code in ENDED
    trials, (event,) = stored(site.directory()), frozen(site.directory())
    threshold = by_hand(trials)
    assert event.values == {"completion_tokens p40": pytest.approx(threshold)}
    assert event.rest_on == {"completion_tokens p40": 3 * 8 * OPENING} and event.run is None
    assert event.models == dict.fromkeys(MODELS, 8 * OPENING)
    require_labels(trials, threshold)
    assert {one.category for one in trials} == {0, 1, 2}
    with closing(RunReader.open(site.directory())) as reader:
        assert event.at <= min(reader.look_times().values())
    said = report(site.directory())
    assert f"p40 {threshold:.4g} (72 trials)" in said
    assert "this run's opening, all answers of 3 models before the first look" in said


@pytest.mark.slow
@pytest.mark.parametrize("after", [5, 40, 71])
def test_a_run_that_is_killed_in_its_opening_goes_on_as_if_it_had_not_been(
    site: Site, leisurely: str, after: int
) -> None:
    config = site.write(**settings(leisurely, concurrency=16))
    process = site.start(config)
    assert wait_for_trials(site.directory(), after, process)
    kill(process)
    before = {(one.model, one.question, one.trial): one for one in stored(site.directory())}
    waiting = [one for one in before.values() if one.grader_error == AWAITS_THRESHOLDS]
    assert (len(waiting) == len(before)) != bool(frozen(site.directory()))
    assert "until then nothing is judged" in report(site.directory()) or frozen(site.directory())
    assert site.run(site.write(**settings(concurrency=16))).exit_code in ENDED
    assert site.run(site.write("whole", **settings()), "--run-dir", str(site.directory("whole"))).exit_code in ENDED
    assert Found.of(site.directory()) == Found.of(site.directory("whole"))
    assert [one.values for one in frozen(site.directory())] == [one.values for one in frozen(site.directory("whole"))]
    after_all = {(one.model, one.question, one.trial): one for one in stored(site.directory())}
    assert all(after_all[place].answer == one.answer for place, one in before.items())  # nothing was asked twice


@pytest.mark.slow
def test_a_judge_is_asked_once_about_an_opening_that_is_interrupted(site: Site, leisurely: str) -> None:
    judged = {"kind": "judge", "server": {"base_url": leisurely, "model": "judge"}}
    config = site.write(**settings(leisurely, grader=judged, concurrency=16))
    process = site.start(config)
    assert wait_for_trials(site.directory(), 40, process)
    kill(process)
    waiting = [one for one in stored(site.directory()) if one.grader_error == AWAITS_THRESHOLDS]
    assert site.run(config).exit_code in ENDED
    after = {(one.model, one.question, one.trial): one for one in stored(site.directory())}
    for one in waiting:
        there = after[one.model, one.question, one.trial]
        assert there.signals == one.signals and there.cost == one.cost and there.category is not None
    require_labels(list(after.values()), by_hand(list(after.values())))


@pytest.mark.slow
def test_thresholds_stay_through_extension_and_go_to_a_later_run(site: Site) -> None:
    site.run(site.write(**settings()))
    (event,) = frozen(site.directory())
    longer = settings(trials={"min": OPENING, "max": 14}, stopping={"confidence": 0.999})
    assert site.run(site.write(**longer)).exit_code in ENDED
    assert len(frozen(site.directory())) == 1
    require_labels(stored(site.directory()), event.values["completion_tokens p40"])

    later = SHORT | {"fit": {"run": str(site.directory())}}
    config = site.write("later", **settings(rubric=later, seed=5))
    assert site.run(config, "--run-dir", str(site.directory("later"))).exit_code in ENDED
    (taken,) = frozen(site.directory("later"))
    assert taken.values == event.values and taken.run == "run"
    require_labels(stored(site.directory("later")), event.values["completion_tokens p40"])
    assert "on the run run, and then frozen" in report(site.directory("later"))
    assert site.run(config, "--run-dir", str(site.directory("later"))).exit_code in ENDED
    assert len(frozen(site.directory("later"))) == 1


def test_a_run_without_thresholds_gives_those_of_its_opening(site: Site) -> None:
    site.run(site.write(**settings(rubric="binary")))
    config = site.write("later", **settings(rubric=SHORT | {"fit": {"run": str(site.directory())}}, seed=5))
    assert site.run(config, "--run-dir", str(site.directory("later"))).exit_code in ENDED
    require_labels(stored(site.directory("later")), by_hand(stored(site.directory())))
    nowhere = site.write("nowhere", **settings(rubric=SHORT | {"fit": {"run": "nowhere"}}))
    refused = site.run(nowhere, "--run-dir", str(site.directory("nowhere")))
    assert refused.exit_code == ExitCode.CONFIGURATION and "nowhere holds no run" in refused.output


def test_regrading_fits_anew_on_the_opening_and_relabelling_says_the_same(site: Site) -> None:
    site.run(site.write(**settings(rubric="binary")))
    looked = command("relabel", site.directory(), "--rubric", write_rubric(site, SHORT), "--format", "json")
    done = command("regrade", site.directory(), "--config", site.write(**settings()))
    assert done.exit_code == ExitCode.REACHED, done.output
    trials, (event,) = stored(site.directory()), frozen(site.directory())
    assert event.values == {"completion_tokens p40": pytest.approx(by_hand(trials))}
    require_labels(trials, by_hand(trials))
    assert looked.exit_code == 0, looked.output
    (_, short) = json.loads(looked.stdout)["relabelling"]["rubrics"]
    assert short["thresholds"] == event.values  # on the same trials, though the run had no such rubric
    counts = Counter((one.model, one.category) for one in trials)
    assert {model["name"]: model["counts"] for model in short["models"]} == {
        name: [counts[name, category] for category in range(3)] for name in MODELS
    }
    assert site.run(site.write(**settings())).exit_code in ENDED
    require_labels(stored(site.directory()), event.values["completion_tokens p40"])
    assert command("relabel", site.directory()).exit_code == 0


def write_rubric(site: Site, rubric: dict[str, object]) -> Path:
    path = site.folder / "short.yaml"
    path.write_text(json.dumps({"rubric": rubric}))
    return path


@pytest.mark.slow
def test_a_model_that_is_set_aside_holds_up_nobody_and_comes_back_under_the_same_thresholds(tmp_path: Path) -> None:
    revoked, run = [True], tmp_path / "run"

    def script(asked: Asked) -> Said | None:
        if revoked[0] and asked.model == "bob" and asked.number >= 10:
            return Said(403, b"revoked")
        tokens = {"prompt_tokens": 5, "completion_tokens": 10 + asked.seed % 50}
        return Said(body={**answer(asked), "usage": tokens})

    with listening(script) as server:
        config = write_config(tmp_path, server)
        config.write_text(config.read_text() + f"\nrubric: {json.dumps(SHORT)}\n")
        first = command("run", config, "--display", "plain", "--run-dir", run)
        (event,) = frozen(run)
        assert event.models.keys() == {"ada"} and "thresholds frozen, from" in first.stdout
        assert any(one.model == "bob" and one.grader_error is None for one in stored(run))  # labelled all the same
        revoked[0] = False
        again = command("run", config, "--display", "plain", "--run-dir", run)
        assert again.exit_code in ENDED, again.output
    assert len(frozen(run)) == 1 and {one.model for one in stored(run)} == {"ada", "bob"}
    require_labels(stored(run), event.values["completion_tokens p40"])


@pytest.mark.slow
def test_models_that_are_served_in_turn_come_to_their_thresholds(site: Site) -> None:
    server = [sys.executable, "-S", str(Path(__file__).with_name("small_server.py")), "{port}", str(site.folder)]
    launch = {"command": server, "exclusive": site.folder.name, "timeout": HANGS}
    models = [{"name": name, "launch": launch} for name in MODELS]
    lengths = SHORT | {"categories": json.loads(json.dumps(SHORT["categories"]).replace("completion", "prompt"))}
    ended = site.run(site.write(**settings(models=models, rubric=lengths, trials={"min": 2, "max": 3})))
    assert ended.exit_code in ENDED, ended.output
    (event,) = frozen(site.directory())
    assert event.models == dict.fromkeys(MODELS, 16)
    assert all(one.category is not None for one in stored(site.directory()))


def test_imported_trials_are_an_opening(site: Site) -> None:
    site.run(site.write(**settings(rubric="binary", trials={"min": 4, "max": 4})))
    log = site.folder / "log.jsonl"
    assert command("export", site.directory(), "--format", "jsonl", "--output", log).exit_code == 0
    config = site.write("taken", **settings(trials={"min": OPENING, "max": 8}))
    done = command("import", log, "--config", config, "--to", site.directory("taken"))
    assert done.exit_code in {0, *ENDED}, done.output
    (event,) = frozen(site.directory("taken"))
    trials = stored(site.directory("taken"))
    opening = [one.answer.completion_tokens for one in trials if one.trial < OPENING]
    assert len(opening) < len(trials)
    assert event.values == {"completion_tokens p40": pytest.approx(np.percentile(opening, 40))}
    require_labels(trials, event.values["completion_tokens p40"])
    assert site.run(config, "--run-dir", str(site.directory("taken"))).exit_code in ENDED
    require_labels(stored(site.directory("taken")), event.values["completion_tokens p40"])


def test_lengths_go_by_the_median_of_the_question_in_the_opening(site: Site) -> None:
    assert site.run(site.write(**settings(rubric=BRIEF))).exit_code in ENDED
    trials, (event,) = stored(site.directory()), frozen(site.directory())
    lengths = defaultdict(list)
    for one in trials:
        if one.trial < OPENING:
            lengths[one.question].append(one.answer.completion_tokens)
    assert event.medians == {key: np.median(some) for key, some in lengths.items()}
    for one in trials:
        ratio = one.answer.completion_tokens / event.medians[one.question]
        assert one.signals["length_ratio"] == pytest.approx(ratio)
        assert one.category == 2 * bool(one.signals["is_correct"]) + (ratio <= 1.2)
    assert set(Counter(one.category for one in trials)) == {0, 1, 2, 3}
    assert "the median length of the answers to each of 8 questions" in report(site.directory())
    assert command("relabel", site.directory()).exit_code == 0


def test_a_threshold_that_no_answer_can_give_ends_the_run_with_what_to_do(site: Site) -> None:
    rubric = {"name": "conf_wrong_penalty", "assume": {"verifier_c": 0}, "fit": "opening"}
    easy = site.folder / "easy.jsonl"
    rows = (site.folder / "questions.jsonl").read_text().splitlines()
    easy.write_text(rows[-1])
    sampling = {"temperature": 0.6, "max_tokens": 2000, "logprobs": True}
    config = settings(
        models=[{"name": name, "base_url": site.base_url} for name in MODELS[:2]],
        rubric=rubric,
        sampling=sampling,
        questions="easy.jsonl",
        trials={"min": 1, "max": 4},
    )
    ended = site.run(site.write(**config))
    assert all(one.signals["is_correct"] for one in stored(site.directory()))
    assert ended.exit_code == ExitCode.CONFIGURATION
    assert "low_wrong cannot be fitted: no trial has completion_bpt and is wrong; raise trials.min" in ended.output


@pytest.mark.parametrize(
    ("rubric", "said"),
    [
        (SHORT | {"fit": None}, "must be given: the rubric compares with completion_tokens p40"),
        ({"name": "efficiency_adjusted", "assume": {"verifier_c": 0}}, "compares with len_p33, len_p66"),
        (BRIEF | {"fit": None}, "compares with length_ratio"),
        ({"name": "binary", "fit": "opening"}, "has nothing to fit"),
        (QUICK, "may not look at latency"),
    ],
)
def test_what_cannot_be_fitted_is_refused(site: Site, rubric: dict[str, object], said: str) -> None:
    refused = site.run(site.write(**settings(rubric=rubric)))
    assert refused.exit_code == ExitCode.CONFIGURATION and said in " ".join(refused.output.split())


def test_numbers_beside_percentiles_are_taken_as_they_are(site: Site) -> None:
    given = {key: value for key, value in SHORT.items() if key != "fit"} | {
        "thresholds": {"completion_tokens p40": 150}
    }
    assert site.run(site.write(**settings(rubric=given))).exit_code in ENDED
    assert not frozen(site.directory())
    require_labels(stored(site.directory()), 150)


@pytest.mark.slow
def test_the_example_that_goes_by_length_runs_against_the_simulator(site: Site) -> None:
    program = [sys.executable, "-u", "-m", "adaptive_eval", "simulate", "coins", "--port", "0"]
    config = yaml.safe_load((ROOT / "configs" / "right-and-brief.yaml").read_text())
    config["trials"]["max"] = 6
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as simulator:
        try:
            assert simulator.stdout is not None
            address = re.search(r"http://\S+/v1", simulator.stdout.readline())
            assert address is not None
            config["models"] = [{"name": one["name"], "base_url": address[0]} for one in config["models"]]
            (site.folder / "brief.yaml").write_text(yaml.safe_dump(config))
            assert site.run(site.folder / "brief.yaml").exit_code in ENDED
        finally:
            simulator.kill()
    (event,), trials = frozen(site.directory()), stored(site.directory())
    opening = [one for one in trials if one.trial < config["trials"]["min"]]
    for question, median in event.medians.items():
        assert median == np.median([one.answer.completion_tokens for one in opening if one.question == question])
    for one in trials:
        long = one.answer.completion_tokens > 1.2 * event.medians[one.question]
        assert one.category == 2 * bool(one.signals["is_correct"]) + (not long)
    results = json.loads((site.directory() / "results.json").read_text())
    assert [row["name"] for row in results["models"]][0] == "coin-11"
