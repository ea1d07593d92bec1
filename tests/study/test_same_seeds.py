"""`plan` with shared seeds: the figures are those of a run without, with a note on how few trials it may take."""

from pathlib import Path

import pytest
from played import prepared

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.study.forecast import NEAR_COPIES, _same_seeds

ASKED = {"objective": {"kind": "baseline", "baseline": "ada"}}


def plan(folder: Path, seeds: str) -> PreparedRun:
    folder.mkdir(exist_ok=True)
    return prepared(folder, ("ada", "bob"), trials={"min": 3, "max": 30, "seeds": seeds}, **ASKED)


@pytest.mark.parametrize("seeds", ["hashed", "consecutive"])
def test_no_sentence_where_shared_seeds_change_no_decision(tmp_path: Path, seeds: str) -> None:
    assert list(_same_seeds(plan(tmp_path, seeds).plan, 300.0)) == []


def test_coupled_gates_take_between_an_opening_and_the_forecast(tmp_path: Path) -> None:
    coupled = plan(tmp_path, "coupled")
    (sentence,) = _same_seeds(coupled.plan, 10_000.0)
    assert f"about {10_000 * NEAR_COPIES:,.0f} trials" in sentence
    (sentence,) = _same_seeds(coupled.plan, 100.0)
    assert "about 36 trials" in sentence  # three of each of six questions, of both
