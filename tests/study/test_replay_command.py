"""`adaptive-eval replay`, from the command line to the files it writes."""

import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import typed

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.report.results import FORMAT
from adaptive_eval.simulate.worlds import WORLDS
from adaptive_eval.store.errors import DATABASE_FILE

SMALL = ("--set", "trials.max=12")


@pytest.fixture(autouse=True)
def _work_in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


replayed = partial(typed, "replay")


def results(path: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(path, "results.json").read_text())
    return content


def record(**extra: object) -> str:
    """Three models: the last is the best by far, the others are alike; 12 trials of 10 questions."""
    p = np.array([0.3, 0.3, 0.9])[:, None, None]
    outcomes = (np.random.default_rng(5).random((3, 10, 12)) < p).astype(np.int8)
    np.savez("record.npz", R=outcomes, models=["ada", "bea", "cleo"], **extra)  # type: ignore[arg-type]
    return "record.npz"


def test_a_world_is_ranked_and_written_as_a_run_is() -> None:
    done = replayed("coins", *SMALL, code=ExitCode.SPENT)
    report = results("runs/replay-coins")
    assert report["format"] == FORMAT
    assert report["run"]["reason"] == "out_of_reach"
    assert report["decisions"]["trials"]["max"] == 12 and report["decisions"]["objective"]["kind"] == "ranking"
    assert {row["name"] for row in report["models"]} == set(WORLDS["coins"]().models)
    assert report["models"][0]["name"] == "coin-11"
    assert sum(sum(row["trials"]) for row in report["questions"]) == report["cost"]["trials"]
    assert "coin-11" in done.stdout and "runs/replay-coins/results.json" in done.stdout
    assert "look " in done.stderr and "look " not in done.stdout


def test_a_small_budget_lowers_the_first_round_as_in_a_run() -> None:
    done = replayed(record(), "--set", "budget.trials=100")
    assert done.exit_code in (ExitCode.REACHED, ExitCode.SPENT) and "better than" in done.stdout, done.output
    assert results("runs/replay-record")["decisions"]["trials"]["min"] == 2


def test_questions_are_drawn_in_another_order_by_each_seed() -> None:
    """Only some recorded questions are asked, once each; rows keep the names and outcomes of their questions."""
    rng = np.random.default_rng(6)
    outcomes = (rng.random((3, 400, 1)) < np.array([0.2, 0.5, 0.8])[:, None, None]).astype(np.int8)
    np.savez("many.npz", R=outcomes, models=["ada", "bea", "cleo"])
    settings = [word for key in ("min=1", "max=1", "draw=50") for word in ("--set", f"trials.{key}")]
    orders = []
    for seed in ("1", "2"):
        replayed("many.npz", *settings, "--seed", seed, "--output", seed, code=ExitCode.REACHED)
        report = results(seed)
        assert [row["name"] for row in report["models"]] == ["cleo", "bea", "ada"]
        assert report["cost"]["trials"] < 1200
        orders.append([row["id"] for row in report["questions"] if sum(row["trials"])])
        place = {"cleo": 2, "bea": 1, "ada": 0}
        for row in report["questions"]:
            number = int("".join(filter(str.isdigit, row["id"]))) - 1
            for at, model in enumerate(report["models"]):
                if row["trials"][at]:
                    right = outcomes[place[model["name"]], number, 0]
                    assert row["counts"][at] == [1 - right, right]
    assert orders[0] != orders[1]


def test_a_file_is_replayed_as_it_was_recorded() -> None:
    path = record()
    replayed(path, "--set", "objective=best", "--set", "trials.max=12", "--output", "out", code=ExitCode.REACHED)
    report = results("out")
    assert [row["name"] for row in report["models"]][0] == "cleo"
    outcomes = np.load(path)["R"]
    first = report["models"].index(next(row for row in report["models"] if row["name"] == "cleo"))
    for number, row in enumerate(report["questions"]):
        right, trials = outcomes[2, number, : row["trials"][first]].sum(), row["trials"][first]
        assert row["mean"][first] == pytest.approx((right + 1) / (trials + 2))
    assert report["warnings"] == []


def test_a_seed_draws_the_trials_in_another_order_and_repeats_itself() -> None:
    path = record()
    for output, seed in (("a", ["--seed", "3"]), ("b", ["--seed", "3"]), ("c", ["--seed", "4"]), ("d", [])):
        replayed(path, "--output", output, *SMALL, *seed)
    a, b, c, d = ({**results(name), "run": None, "checksum": None} for name in "abcd")
    assert a == b
    assert a != c and a != d


def test_only_the_sections_that_decide_are_read_of_a_configuration() -> None:
    Path("whole.yaml").write_text(
        "name: real\nquestions: absent.jsonl\nmodels:\n- {name: cleo, base_url: 'http://${NO_SUCH_HOST}/v1'}\n"
        "grader: exact\nstopping: {confidence: 0.9}\nobjective: {kind: baseline, baseline: cleo}\ntrials: {max: 12}\n"
    )
    replayed(record(), "--config", "whole.yaml", code=ExitCode.REACHED)
    pairs = {(pair["first"], pair["second"]) for pair in results("runs/replay-record")["pairs"]}
    assert pairs == {("cleo", "ada"), ("cleo", "bea")}


def test_the_rubric_of_a_configuration_weighs_the_categories() -> None:
    np.savez("graded.npz", R=np.array([[[0, 1, 2, 1] * 3]] * 2))
    Path("c.yaml").write_text(
        "trials: {min: 12, max: 12}\nrubric:\n  categories:\n  - {name: right, weight: 1, when: {is_correct: true}}\n"
        "  - {name: half, weight: 0.5, when: {has_box: true}}\n  - {name: wrong, weight: 0.2}\n"
    )
    replayed("graded.npz", "--config", "c.yaml")
    report = results("runs/replay-graded")
    assert report["weights"] == [1.0, 0.5, 0.2]
    assert report["models"][0]["score"] == pytest.approx((1.0 + 0.5 + 0.2 + 0.5) / 4)


def test_top_leaves_the_best() -> None:
    replayed("coins", "--top", "3", *SMALL)
    assert sorted(row["name"] for row in results("runs/replay-coins")["models"]) == ["coin-09", "coin-10", "coin-11"]
    left_out = replayed("coins", "--top", "3", "--set", "objective={kind: baseline, baseline: coin-01}")
    assert left_out.exit_code == ExitCode.CONFIGURATION
    assert "objective.baseline must be the name of a model" in left_out.stderr


def test_trials_beyond_the_record_are_warned_of() -> None:
    done = replayed(record(), "--set", "trials.max=40", "--seed", "1")
    (warning,) = results("runs/replay-record")["warnings"]
    assert warning["kind"] == "beyond_record"
    assert "beyond what was recorded (12 to 12 per question)" in done.stdout


def test_identical_grades_warn_that_they_may_be_one_answer_each() -> None:
    rng = np.random.default_rng(3)
    once = np.repeat((rng.random((1, 10, 1)) < 0.5).astype(np.int8), 12, axis=2)
    perfect, drawn = np.ones((1, 10, 12), np.int8), (rng.random((1, 10, 12)) < 0.5).astype(np.int8)
    np.savez("record.npz", R=np.concatenate([once, perfect, drawn]), models=["once", "perfect", "drawn"])
    done = replayed("record.npz", "--set", "trials.max=12")
    warned = [(warning["kind"], warning["model"]) for warning in results("runs/replay-record")["warnings"]]
    assert warned == [("repeats_unclear", "once")]
    assert "grades alone cannot tell which" in done.stdout.replace("\n", " ")


def test_a_study_tells_what_runs_cost_and_got_wrong() -> None:
    done = replayed(record(), *SMALL, "--runs", "12", "--seed", "7", "--output", "study", code=ExitCode.REACHED)
    rows = list(csv.DictReader(Path("study/runs.csv").read_text().splitlines()))
    assert [int(row["seed"]) for row in rows] == list(range(7, 19))
    mean = np.mean([float(row["cost"]) for row in rows])
    line = next(line for line in done.stdout.splitlines() if line.startswith("cost, share of the maximum"))
    assert float(line.split()[5]) == pytest.approx(mean, abs=6e-4)
    wrong = sum(int(row["wrong"]) > 0 for row in rows)
    assert f"{wrong} of 12 runs made a wrong decision" in done.stdout
    replayed(record(), *SMALL, "--seed", "9", "--output", "one")
    assert results("one")["cost"]["trials"] == int(rows[2]["trials"]), "a run of a study is the replay of its seed"


@pytest.mark.slow
@pytest.mark.parametrize("optimize", ["cost", "time"])
def test_trials_asked_ahead_count_in_cost_and_scores(optimize: str) -> None:
    """In a replay all of these trials arrive, and a study reports the same costs as single replays."""
    pace = (*SMALL, "--set", f"trials.optimize={optimize}")
    assert replayed("coins", *pace, "--runs", "2", "--output", "study").exit_code == ExitCode.REACHED
    with Path("study", "runs.csv").open() as file:
        costs = [int(row["trials"]) for row in csv.DictReader(file)]
    for seed in (0, 1):
        replayed("coins", *pace, "--seed", str(seed), "--output", f"one-{seed}")
    reports = [results(f"one-{seed}") for seed in (0, 1)]
    assert costs == [report["cost"]["trials"] for report in reports]
    assert costs == [sum(row["trials"] for row in report["models"]) for report in reports], "nothing is left out"
    assert (optimize == "time") == any(report["cost"]["trials"] > report["looks"][-1]["trials"] for report in reports)


def test_a_directory_of_a_real_run_is_left_alone() -> None:
    Path("real").mkdir()
    Path("real", DATABASE_FILE).touch()
    assert "real is a run" in replayed("coins", "--output", "real", code=ExitCode.CONFIGURATION).stderr
    assert not Path("real/results.json").exists()


REFUSED = {
    "no such thing": (["conis"], "conis is neither a file, nor a run, nor a world; did you mean `coins`?"),
    "a wrong setting": (["coins", "--set", "trials.maxx=3"], "trials.maxx is not a known key; did you mean `max`?"),
    "no such model": (["coins", "--set", "objective={kind: baseline, baseline: coin-1}"], "did you mean `coin-"),
    "a price": (["coins", "--set", "budget.usd=3"], "budget.usd cannot be kept in a replay"),
    "a time": (["coins", "--set", "budget.wall_time=60s"], "budget.wall_time cannot be kept in a replay"),
    "one model": (["coins", "--top", "1"], "models must be two or more for the objective ranking"),
    "no configuration": (["coins", "--config", "absent.yaml"], "absent.yaml cannot be read"),
    "a configuration": (["mine.yaml"], "mine.yaml is a configuration"),
    "not a directory": (["coins", "--output", "record.npz/x"], "record.npz/x cannot be created"),
    "a budget without a round, often": (
        ["coins", "--runs", "3", "--set", "budget.trials=9"],
        "the budget does not cover the first round",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_replayed_is_refused(arguments: list[str], message: str) -> None:
    record()
    Path("mine.yaml").write_text("name: mine\n")
    done = replayed(*arguments, code=ExitCode.CONFIGURATION)
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_a_cap_that_cannot_be_kept_can_be_lifted() -> None:
    Path("c.yaml").write_text("budget: {usd: 3, tokens: 1e6, trials: 2000}\ntrials: {max: 12}\n")
    assert replayed("coins", "--config", "c.yaml").exit_code == ExitCode.CONFIGURATION
    lifted = replayed("coins", "--config", "c.yaml", "--set", "budget.usd=null", "--set", "budget.tokens=null")
    assert lifted.exit_code == ExitCode.SPENT
    assert 0 < results("runs/replay-coins")["cost"]["trials"] <= 2000


def test_a_budget_without_a_round_has_no_results() -> None:
    done = replayed("coins", "--set", "budget.trials=9", code=ExitCode.SPENT)
    assert "the budget does not cover the first round" in done.stdout
    assert not Path("runs/replay-coins/results.json").exists()
