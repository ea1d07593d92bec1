"""The gold standards reached adaptively, in small, against the controller's own fixed design and by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.core import Bench, Controller, Plan
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.settings import Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.errors import ConfigError
from adaptive_eval.simulate.worlds import WORLDS
from adaptive_eval.study import adaptive
from adaptive_eval.study.adaptive import COLUMNS, SETUPS, AdaptiveRequest, study_adaptive
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.experiment import Experiment
from adaptive_eval.study.judged import judge_replay
from adaptive_eval.study.one_look import one_look_at, smallest_fixed


@pytest.mark.parametrize("name", ["coins", "exact_ties", "rubric"])
def test_the_fixed_design_calls_what_a_run_with_one_look_calls(name: str) -> None:
    world = WORLDS[name]()
    models, questions, _ = world.p.shape
    plan = Plan(Bench(models, questions, world.w), rule=ZScore(), policy=Uniform(), prior="uniform")
    plan = replace(plan, judging=Judging(futility=None))
    for seed in range(2):
        curves = one_look_at(Tape.of_chances(world.p, world.w, np.random.default_rng(seed)), world.truth, questions, 30)
        for n in (4, 30):
            tape = Tape.of_chances(world.p, world.w, np.random.default_rng(seed))
            run = judge_replay(0, drive_rounds(Controller(replace(plan, trials=Trials(n, n))), tape), world.truth)
            assert (run.cost, run.looks) == (1.0, 1)
            found = [float(curve[n - 1]) for curve in curves]
            assert found[:3] == [run.called, run.wrong, float(run.wrong > 0)]
            assert found[3] == (run.wrong if name == "exact_ties" else found[3])
            assert found[4] == pytest.approx(run.tau_b, nan_ok=True)


def test_the_smallest_fixed_design_lies_where_the_curve_first_comes_up_to_it() -> None:
    curve = np.array([1.0, 2.0, 2.0, 4.0, 3.0])
    assert smallest_fixed(curve, 0.5) == 1.0
    assert smallest_fixed(curve, 1.25) == pytest.approx(1.25)
    assert smallest_fixed(curve, 2.0) == pytest.approx(2.0)
    assert smallest_fixed(curve, 3.5) == pytest.approx(3.75)
    assert smallest_fixed(curve, 4.5) is None


def rows_of(found: Experiment) -> dict[tuple[str, str], dict[str, object]]:
    return {(str(row[0]), str(row[1])): dict(zip(COLUMNS, row, strict=True)) for row in found.tables[0].rows}


@pytest.mark.slow
def test_what_is_saved_is_against_as_many_calls() -> None:
    found = study_adaptive(AdaptiveRequest(("coins", "exact_ties"), replicates=2, trials=12, seed=5))
    rows = rows_of(found)
    assert rows.keys() == {
        (data, setup) for data in ("coins", "exact_ties") for setup in (*SETUPS, "fixed N = 12, one look")
    }
    calls = [float(str(row[2])) for row in found.tables[1].rows if row[0] == "coins"]
    told = 0
    for (data, setup), row in rows.items():
        cost, many, saved = (row[name] for name in ("cost", "fixed N, as many", "saved"))
        assert isinstance(cost, float) and 4 / 12 <= cost <= 1.0
        if data == "exact_ties":
            assert row["tau-b"] is None and row["calls"] == row["ties called"]
            assert (row["any wrong"] == 0.0) == (row["calls"] == 0.0)
            continue
        if isinstance(many, float) and isinstance(saved, float) and setup in SETUPS:
            told += many > 1.0
            assert saved == pytest.approx(1.0 - 12 * cost / many)
            assert np.interp(many, np.arange(1, 13), calls) == pytest.approx(row["calls"]) or many == 1.0
    assert told
    assert {one.what.split(",")[0] for one in found.criteria} == {"coins", "exact_ties"}
    assert all(one.holds is None for one in found.criteria if "zscore" in one.what or "published" in one.what)


@pytest.mark.slow
def test_recorded_outcomes_are_drawn_within_their_record_and_the_command_writes_all(tmp_path: Path) -> None:
    R = (np.random.default_rng(0).random((4, 6, 9)) < np.array([0.2, 0.5, 0.55, 0.9])[:, None, None]).astype(np.int64)
    np.savez(tmp_path / "mine.npz", R=R)
    words = ["study", "adaptive", str(tmp_path / "mine.npz"), "--top", "3", "--replicates", "1", "--seed", "4"]
    told = CliRunner().invoke(app, [*words, "--output", str(tmp_path / "out")])
    assert told.exit_code == 0, told.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "adaptive.csv", "adaptive_fixed.csv", "adaptive.json", "adaptive_mine.svg", "adaptive_mine.png",
    }  # fmt: skip
    study = json.loads((tmp_path / "out" / "adaptive.json").read_text())["study"]
    assert study["settings"] == {"data": "mine", "replicates": 1, "trials": "9", "seed": 4}
    again = study_adaptive(AdaptiveRequest((str(tmp_path / "mine.npz"),), 1, top=3, seed=4))
    assert study["tables"][0]["rows"] == [list(row) for row in again.tables[0].rows], "the same seed, the same figures"
    last = dict(zip(COLUMNS, study["tables"][0]["rows"][-1], strict=True))
    assert last["tau-b"] == 1.0, "all that was recorded, drawn without replacement, is the truth"
    refused = CliRunner().invoke(app, [*words, "--trials", "10"])
    assert refused.exit_code == 2 and "at most 9, as many as mine has" in refused.stderr
    with pytest.raises(ConfigError, match="at least 5 trials"):
        study_adaptive(AdaptiveRequest(("coins",), 1, trials=4))


@pytest.mark.slow
def test_many_draws_are_shared_among_processes_and_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    request = AdaptiveRequest(("coins",), replicates=4, trials=5)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    alone = study_adaptive(request)
    monkeypatch.setattr(adaptive, "FEW", 2)
    assert study_adaptive(request) == alone
