"""`plan` where models share their seeds: the figures are those of a run without, and it says how few there may be."""

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
def test_where_decisions_make_nothing_of_shared_seeds_there_is_nothing_to_say(tmp_path: Path, seeds: str) -> None:
    assert list(same_seed_sentences(plan(tmp_path, seeds), None, 300.0)) == []


def test_it_takes_from_an_opening_to_what_is_forecast(tmp_path: Path) -> None:
    coupled = plan(tmp_path, "coupled")
    (sentence,) = same_seed_sentences(coupled, None, 10_000.0)
    assert f"about {10_000 * NEAR_COPIES:,.0f} trials" in sentence
    (sentence,) = same_seed_sentences(coupled, None, 100.0)
    assert "about 36 trials" in sentence  # three of each of six questions, of both


def test_a_pilot_with_the_same_seeds_says_how_far_they_went_together(tmp_path: Path) -> None:
    coupled = plan(tmp_path, "coupled")
    Played(tmp_path / "run", coupled).finish()
    pilot = read_pilot(tmp_path / "run", coupled)
    _, sentence = same_seed_sentences(coupled, pilot, 300.0)
    values = coupled.plan.bench.weights[np.maximum(pilot.outcomes, 0)]
    both = (pilot.outcomes >= 0).all(axis=0)
    coupled_trials = coupling(np.nonzero(both)[0], values[0][both], values[1][both])
    assert sentence.startswith(f"in the pilot, ada and bob shared {coupled_trials.trials} trials: ")
    assert (
        f"{coupled_trials.variance:.2f} of the trials that independent models would (+- {coupled_trials.sigma:.2f}"
        in sentence
    )


def test_a_pilot_with_seeds_of_their_own_says_nothing_of_it(tmp_path: Path) -> None:
    Played(tmp_path / "apart" / "run", plan(tmp_path / "apart", "hashed")).finish()
    coupled = plan(tmp_path, "coupled")
    assert len(list(same_seed_sentences(coupled, read_pilot(tmp_path / "apart" / "run", coupled), 300.0))) == 1
