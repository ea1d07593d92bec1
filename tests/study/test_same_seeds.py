"""`plan` and `replay` with shared seeds: a plan's figures are those of a run without, with a note on how few trials it
may take, but begin with the verdicts that a run has; a replay in recorded order compares trial by trial."""

from pathlib import Path

import numpy as np
import pytest
from command_line import typed
from planned import HORIZON, QUESTIONS, prepared_from, store_run, write_config
from played import prepared

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.core.tape import Tape
from adaptive_eval.study.forecast import NEAR_COPIES, _same_seeds, make_forecast

ASKED = {"objective": {"kind": "baseline", "baseline": "ada"}}


def plan(folder: Path, seeds: str) -> PreparedRun:
    folder.mkdir(exist_ok=True)
    return prepared(folder, ("ada", "bob"), trials={"min": 3, "max": 30, "seeds": seeds}, **ASKED)


def test_coupled_gates_take_between_an_opening_and_the_forecast(tmp_path: Path) -> None:
    coupled = plan(tmp_path, "coupled")
    (sentence,) = _same_seeds(coupled.plan, 10_000.0)
    assert f"about {10_000 * NEAR_COPIES:,.0f} trials" in sentence
    (sentence,) = _same_seeds(coupled.plan, 100.0)
    assert "about 36 trials" in sentence  # three of each of six questions, of both
    for seeds in ("hashed", "consecutive"):
        assert list(_same_seeds(plan(tmp_path, seeds).plan, 300.0)) == [], "they change no decision"


@pytest.fixture
def gate(tmp_path: Path) -> PreparedRun:
    """A finished run of two models whose answers to the same seeds are the same, which no seeds of their own show."""
    objective = {"kind": "baseline", "baseline": "ada", "gate": True}
    settings = {"trials": {"min": 4, "max": HORIZON, "optimize": "cost", "seeds": "coupled"}, "objective": objective}
    path = write_config(tmp_path, models=("ada", "bob"), stopping={"delta": 0.06}, store=str(tmp_path), **settings)
    plan = prepared_from(path)
    alike = np.random.default_rng(2).random((HORIZON, 1, len(QUESTIONS))) < 0.5
    layers = np.repeat(alike, 2, axis=1).astype(np.uint8)
    store_run(plan, tmp_path / "small", tape=Tape(iter(layers), plan.plan.bench.weights))
    return plan


def test_a_replay_in_recorded_order_compares_trial_by_trial(gate: PreparedRun, tmp_path: Path) -> None:
    replay = "replay", tmp_path / "small", "--output", tmp_path / "replayed"
    done = typed(*replay, code=ExitCode.REACHED)
    assert "PASS: bob" in done.stdout and "note" not in done.stdout, done.output
    other = typed(*replay, "--seed", "1")
    assert "UNDECIDED: bob" in other.stdout, other.output
    assert "note: trials.seeds: coupled has no effect here" in other.stdout


def test_a_plan_of_a_run_begins_with_its_verdicts(gate: PreparedRun) -> None:
    forecast = make_forecast(gate, lambda share, words: None, max_worlds=10)
    assert forecast.need.gate["PASS"] == 1.0 and forecast.need.decided.low == 1.0
    assert forecast.spent is not None and forecast.need.costs.trials.high == forecast.spent.trials
