"""`plan` with shared seeds: the figures are those of a run without, with a note on how few trials it may take."""

from pathlib import Path

import numpy as np
import pytest
from played import Played, prepared

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.study.forecast import NEAR_COPIES, same_seed_sentences
from adaptive_eval.study.pilot import read_pilot
from scorio.sinf import coupling

ASKED = {"objective": {"kind": "baseline", "baseline": "ada"}}


def plan(folder: Path, seeds: str) -> PreparedRun:
    folder.mkdir(exist_ok=True)
    return prepared(folder, ("ada", "bob"), trials={"min": 3, "max": 30, "seeds": seeds}, **ASKED)


@pytest.mark.parametrize("seeds", ["hashed", "consecutive"])
def test_no_sentence_where_shared_seeds_change_no_decision(tmp_path: Path, seeds: str) -> None:
    assert list(same_seed_sentences(plan(tmp_path, seeds), None, 300.0)) == []


def test_coupled_gates_take_between_an_opening_and_the_forecast(tmp_path: Path) -> None:
    coupled = plan(tmp_path, "coupled")
    (sentence,) = same_seed_sentences(coupled, None, 10_000.0)
    assert f"about {10_000 * NEAR_COPIES:,.0f} trials" in sentence
    (sentence,) = same_seed_sentences(coupled, None, 100.0)
    assert "about 36 trials" in sentence  # three of each of six questions, of both


def test_a_pilot_with_the_same_seeds_reports_their_coupling(tmp_path: Path) -> None:
    coupled = plan(tmp_path, "coupled")
    Played(tmp_path / "run", coupled).finish()
    pilot = read_pilot(tmp_path / "run", coupled)
    _, sentence = same_seed_sentences(coupled, pilot, 300.0)
    values = coupled.plan.bench.weights[np.maximum(pilot.outcomes, 0)]
    both = (pilot.outcomes >= 0).all(axis=0)
    coupled_trials = coupling(np.nonzero(both)[0], values[0][both], values[1][both])
    assert sentence.startswith(f"in the pilot, ada and bob shared {coupled_trials.trials} trials: ")
    assert (
        f"{coupled_trials.variance:.2f} times the trials of independent models (+- {coupled_trials.sigma:.2f}"
        in sentence
    )


def test_a_pilot_with_separate_seeds_reports_no_coupling(tmp_path: Path) -> None:
    Played(tmp_path / "apart" / "run", plan(tmp_path / "apart", "hashed")).finish()
    coupled = plan(tmp_path, "coupled")
    assert len(list(same_seed_sentences(coupled, read_pilot(tmp_path / "apart" / "run", coupled), 300.0))) == 1
