"""The simulated experiments of the paper, in small, against what it prints and against other ways to the numbers."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau, norm
from typer.testing import CliRunner

import scorio.eval
from adaptive_eval.cli import app
from adaptive_eval.simulate.worlds import COIN_MEANS, coins
from adaptive_eval.study.coins import METRICS, CoinsRequest, coin_outcomes, study_coins
from adaptive_eval.study.experiment import DataTable, Experiment, StudyRequest
from adaptive_eval.study.priors import (
    MEANS,
    original_chances,
    right_answers,
    study_priors,
    updated_chances,
)
from adaptive_eval.study.ranking import PRINTED, study_ranking, study_separation
from scorio.rank import rank_scores


def unwatched(share: float, state: str) -> None:
    """Ignore the progress."""


def table(found: Experiment, name: str) -> DataTable:
    (one,) = [each for each in found.tables if each.name == name]
    return one


def failed(found: Experiment) -> list[str]:
    return [f"{one.what}: {one.found}, required {one.required}" for one in found.criteria if one.holds is False]


@pytest.mark.slow
def test_bayes_finds_the_order_of_the_coins_first() -> None:
    found = study_coins(CoinsRequest(matrices=120, bootstrapped=12, replicates=120, seed=3), unwatched)
    lead = [one for one in found.criteria if "above the best other" in one.what]
    assert len(lead) == 4 and all(isinstance(one.found, float) and one.found > -0.01 for one in lead)
    rows = {row[0]: row[1:] for row in table(found, "coins_at_looks").rows}
    assert rows["Bayes@N"] == rows["avg@N"] and rows.keys() == METRICS.keys()
    for ks in zip(rows["Pass@2"], rows["Pass@4"], rows["Pass@8"], strict=True):
        assert list(ks) == sorted(ks, reverse=True), "the more draws, the less is seen of the difference"
    near = [one for one in found.criteria if "as many trials as it is worth" in one.what]
    assert len(near) == 2 and all(isinstance(one.found, float) and one.found < 0.04 for one in near)


def test_a_curve_of_the_coins_is_the_mean_of_scipys_tau() -> None:
    found = study_coins(CoinsRequest(matrices=3, bootstrapped=2, replicates=2, seed=5), unwatched)
    tensors = coin_outcomes(3, 80, np.random.default_rng([5, 0]))
    rows = table(found, "coins_curves").rows
    curve = {row[2]: row[3] for row in rows if row[:2] == ("independent", "Pass@4")}
    for n in (4, 17, 80):
        scores = [[scorio.eval.pass_at_k(one[:, :n], 4) for one in tensor] for tensor in tensors]
        taus = [kendalltau(np.round(one, 9), COIN_MEANS).statistic for one in scores]
        assert curve[n] == pytest.approx(np.mean(taus))


def test_the_ranks_of_the_paper_come_out() -> None:
    found = study_ranking(StudyRequest(replicates=1000, seed=1), unwatched)
    models, gold, expected, drawn, _ = zip(*table(found, "ranking").rows, strict=True)
    assert models[0] == "LLM11" and (gold, expected) == (PRINTED["gold"], PRINTED["with"])
    assert drawn == PRINTED["without"]
    (apart,) = [one for one in found.criteria if "LLM4 from LLM5" in one.what]
    assert isinstance(apart.found, float) and apart.found > 0.05 and apart.holds
    shares = [row[1] for row in table(found, "ranking_with_uncertainty").rows]
    assert sum(float(str(share)) for share in shares) == pytest.approx(1.0)


@pytest.mark.slow
def test_telling_two_coins_apart_takes_as_long_as_printed() -> None:
    found = study_separation(StudyRequest(replicates=4000, seed=2), unwatched)
    assert not failed(found) and len(found.criteria) == 6
    rows = {row[0]: row[1:] for row in table(found, "separation").rows}
    chances = coins().p[[8, 9], :, 1]
    for n in (80, 285):
        spread = np.sqrt((chances * (1 - chances)).sum() / n) / 30
        assert rows[n][0] == pytest.approx(norm.cdf((COIN_MEANS[9] - COIN_MEANS[8]) / spread), abs=0.02)


def test_priors_help_and_harm_as_printed() -> None:
    found = study_priors(StudyRequest(replicates=3000, seed=4), unwatched)
    assert not failed(found) and len(found.criteria) == 7


def test_right_answers_in_all_rank_as_bayes_with_prior_outcomes() -> None:
    rng = np.random.default_rng(0)
    chances = updated_chances(1, rng)
    assert original_chances(7).mean(axis=1) == pytest.approx(MEANS) and chances.shape == (1, 8, 30)
    R, R0 = ((rng.random((*chances[0].shape, n)) < chances[0][..., None]).astype(int) for n in (5, 3))
    by_bayes = [scorio.eval.bayes(one, R0=before)[0] for one, before in zip(R, R0, strict=True)]
    totals = R.sum(axis=(1, 2)) + R0.sum(axis=(1, 2))
    assert rank_scores(by_bayes).tolist() == rank_scores(totals).tolist()
    cumulative = right_answers(np.ones((2, 8, 30)), 3, rng)
    assert cumulative.tolist() == [[[30] * 8, [60] * 8, [90] * 8]] * 2


@pytest.mark.parametrize(
    "name", ["ranking", *(pytest.param(name, marks=pytest.mark.slow) for name in ("separation", "priors"))]
)
def test_a_study_is_a_command_whose_seed_decides(name: str, tmp_path: Path) -> None:
    words = ["study", name, "--replicates", "10", "--seed", "9", "--output"]
    told = CliRunner().invoke(app, [*words, str(tmp_path / "a")])
    assert told.exit_code == 0, told.output
    assert "measured, and required" in told.stdout and "100%" in told.stderr
    assert CliRunner().invoke(app, [*words, str(tmp_path / "b")]).exit_code == 0
    first, second = (sorted((tmp_path / place).iterdir()) for place in "ab")
    assert [one.name for one in first] == [one.name for one in second]
    assert {one.suffix for one in first} == {".csv", ".json", ".svg", ".png"}
    assert all(one.read_bytes() == other.read_bytes() for one, other in zip(first, second, strict=True))
    said = json.loads((tmp_path / "a" / f"{name}.json").read_text())
    assert said["format"] == "adaptive-eval.study/1" and said["study"]["settings"]["seed"] == 9
    for data in said["study"]["tables"]:
        rows = list(csv.reader((tmp_path / "a" / f"{data['name']}.csv").read_text().splitlines()))
        assert rows[0] == data["columns"] and len(rows) == len(data["rows"]) + 1


def test_without_matplotlib_a_study_writes_its_data_and_says_what_figures_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = CliRunner().invoke(app, ["study", "ranking", "--replicates", "5", "--output", str(tmp_path)])
    assert told.exit_code == 0 and "pip install 'adaptive-eval[plots]'" in told.stderr
    assert {one.suffix for one in tmp_path.iterdir()} == {".csv", ".json"}


def test_a_study_that_cannot_write_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = CliRunner().invoke(app, ["study", "ranking", "--replicates", "5", "--output", str(tmp_path / "file")])
    assert told.exit_code == 1 and "cannot be a folder" in told.stderr and "--output" in told.stderr
    assert not told.stdout  # it is told before the work
    assert CliRunner().invoke(app, ["study", "ranking", "--replicates", "0"]).exit_code == 2
