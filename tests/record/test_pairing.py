"""How far models with the same seeds err together: against simulations of the difference itself, and in stored runs."""

from pathlib import Path

import numpy as np
import pytest
from played import Played, prepared
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.record.pairing import ModelValues, Pairing, pairing
from adaptive_eval.store import store as storing
from adaptive_eval.store import summing

QUESTIONS = 30
CHANCES = np.random.default_rng(5).beta(0.8, 0.8, QUESTIONS)


def outcomes(uniform: np.ndarray, shift: float = 0.0) -> np.ndarray:
    """Right where the noise is small enough."""
    return (uniform < np.clip(CHANCES + shift, 0.0, 1.0)[:, None]).astype(float)


def told(values: np.ndarray, missing: int = 0) -> ModelValues:
    """As they come, trial by trial; the last `missing` trials of every question have not come."""
    found = ModelValues()
    for trial in range(values.shape[1] - missing):
        for question, value in enumerate(values[:, trial].tolist()):
            found.add(question, trial, value)
    return found


def pair(kind: str, trials: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two models: independent, with the same noise, or with noise that goes against each other."""
    noise = rng.random((QUESTIONS, trials))
    other = {"apart": rng.random((QUESTIONS, trials)), "together": noise, "against": 1.0 - noise}[kind]
    return outcomes(noise), outcomes(other, 0.02)


@pytest.mark.parametrize("kind", ["apart", "together", "against"])
def test_it_is_what_the_difference_varies_by(kind: str) -> None:
    """The variance of the differences of 1,500 pairs of runs, over that of independent ones by the chances."""
    rng = np.random.default_rng(1)
    drawn = [pair(kind, 6, rng) for _ in range(1500)]
    differences = [(one - other).mean() for one, other in drawn]
    variances = [p * (1.0 - p) for p in (CHANCES, np.clip(CHANCES + 0.02, 0.0, 1.0))]
    true = np.var(differences) / (sum(one.sum() for one in variances) / 6 / QUESTIONS**2)
    rows = [pairing("a", "b", told(one), told(other)) for one, other in drawn[:150]]
    found = [row.variance for row in rows if row is not None]
    assert np.mean(found) == pytest.approx(true, rel=0.08)
    assert (np.mean(found) < 0.5) == (kind == "together")
    assert (np.mean(found) > 1.1) == (kind == "against")
    shown = np.mean([row.is_shown for row in rows if row is not None])
    assert shown < 0.02 if kind == "apart" else shown > 0.8


def test_its_standard_error_is_that_of_independent_models() -> None:
    rng = np.random.default_rng(2)
    rows = [pairing("a", "b", *map(told, pair("apart", 8, rng))) for _ in range(250)]
    z = [(row.variance - 1.0) / row.sigma for row in rows if row is not None]
    assert np.mean(z) == pytest.approx(0.0, abs=0.2)
    assert np.std(z) == pytest.approx(1.0, abs=0.15)


def test_trials_that_one_side_lacks_count_for_nothing() -> None:
    rng = np.random.default_rng(3)
    one, other = pair("together", 9, rng)
    cut = pairing("a", "b", told(one), told(other, missing=3))
    whole = pairing("a", "b", told(one[:, :6]), told(other[:, :6]))
    assert cut == whole
    assert cut is not None and cut.trials == 6 * QUESTIONS


def test_it_is_the_formula_question_by_question() -> None:
    rng = np.random.default_rng(4)
    both = rng.normal(size=(2, 9, 5))
    counts, values = rng.integers(0, 6, (2, 9)), [ModelValues(), ModelValues()]
    for side, question, trial in np.ndindex(2, 9, 5):
        if trial < counts[side, question]:
            values[side].add(question, trial, both[side, question, trial])
    together = apart = noise = 0.0
    for question, n in enumerate(counts.min(axis=0).tolist()):
        if n > 1:
            x, y = both[:, question, :n]
            together += np.var(x - y, ddof=1) / n
            apart += (np.var(x, ddof=1) + np.var(y, ddof=1)) / n
            noise += np.var(x, ddof=1) * np.var(y, ddof=1) / (n * n * (n - 1))
    found = pairing("a", "b", *values)
    assert found is not None
    assert found.trials == sum(n for n in counts.min(axis=0).tolist() if n > 1)
    assert (found.variance, found.sigma) == pytest.approx((together / apart, 2.0 * np.sqrt(noise) / apart))


@pytest.mark.parametrize("trials", [0, 1])
def test_too_little_says_nothing(trials: int) -> None:
    one = np.ones((QUESTIONS, trials))
    assert pairing("a", "b", told(one), told(one)) is None


def test_answers_that_never_differ_say_nothing() -> None:
    one = np.ones((QUESTIONS, 5))
    assert pairing("a", "b", told(one), told(one)) is None


class TestOfAStoredRun:
    """All models share their seeds."""

    def run(self, folder: Path, seeds: str) -> Path:
        prepared(folder, trials={"min": 3, "max": 30, "seeds": seeds})
        path = folder / "played.yaml"
        Played(folder / "run", prepare(load_config(path))).finish()
        return folder / "run"

    def report(self, run: Path, kind: str = "md", *options: str) -> str:
        done = CliRunner().invoke(app, ["report", str(run), "--format", kind, "--output", "-", *options])
        assert done.exit_code == 0, done.output
        return done.output

    def test_a_report_tells_of_the_pairs_with_the_same_seeds(self, tmp_path: Path) -> None:
        run = self.run(tmp_path, "consecutive")
        text = self.report(run)
        assert "## The same seeds" in text
        section = text.split("## The same seeds")[1].split("##")[0]
        (row,) = [line for line in section.splitlines() if line.startswith("| ada") and "bob" in line]
        assert "not shown" in row
        assert '"pairings":[{"better":"ada","worse":"bob"' in self.report(run, "json")

    def test_a_report_of_a_large_run_tells_of_them_where_the_whole_is_asked_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small, large = tmp_path / "small", tmp_path / "large"
        small.mkdir()
        as_ever = self.report(self.run(small, "consecutive"))
        for module in (storing, summing):
            monkeypatch.setattr(module, "SUMMED_EVERY", 50)
        large.mkdir()
        run = self.run(large, "consecutive")
        assert "report --whole" in self.report(run) and "## The same seeds" not in self.report(run)
        whole = self.report(run, "md", "--whole")
        assert "report --whole" not in whole
        assert self.section(whole, "## The same seeds") == self.section(as_ever, "## The same seeds") != ""

    def section(self, report: str, title: str) -> str:
        return report.partition(title)[2].partition("\n## ")[0]

    def test_with_seeds_of_their_own_there_is_nothing_to_tell(self, tmp_path: Path) -> None:
        assert "The same seeds" not in self.report(self.run(tmp_path, "hashed"))


def test_what_is_shown_is_three_standard_errors_away() -> None:
    assert not Pairing("a", "b", 100, 0.75, 0.1).is_shown
    assert Pairing("a", "b", 100, 0.65, 0.1).is_shown
    assert Pairing("a", "b", 100, 1.35, 0.1).is_shown
