"""A run that has ended beside the smallest fixed design that calls as many: worked out, kept, and shown."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from played import Played, prepared
from test_simulated import QUESTIONS, level, plan
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.core import Controller, Pace, Plan, Trials, Verdict
from adaptive_eval.core.objectives import Best
from adaptive_eval.core.tape import Tape
from adaptive_eval.record.results import BesideFixed, RunCost
from adaptive_eval.record.results_file import read_results, write_results
from adaptive_eval.study import beside_fixed as module
from adaptive_eval.study.beside_fixed import compare_with_fixed
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.fixed import fixed_calls, smallest_fixed

MODELS, MOST = 4, 24
WORLD = level(0.75, 0.62, 0.55, 0.42)
TRUTH = np.array([0.75, 0.62, 0.55, 0.42])


def small() -> Plan:
    return plan(MODELS, trials=Trials(4, MOST))


def tape(*seed: int) -> Tape:
    return Tape.from_chances(WORLD, np.array([0.0, 1.0]), np.random.default_rng(seed))


def run_of(one: Plan, *seed: int) -> Controller:
    return drive_rounds(Controller(one), tape(*seed))


@pytest.mark.slow
def test_it_is_near_to_what_many_runs_cost_in_the_world_that_the_run_has_seen() -> None:
    """The truth by 60 runs, and as many fixed designs, in the world itself; the figures from six runs alone."""
    one = small()
    runs = [run_of(one, 0, seed) for seed in range(60)]
    called = float(np.mean([run.looks[-1].count(Verdict.RESOLVED) for run in runs]))
    curve = np.mean([fixed_calls(tape(1, seed), TRUTH, QUESTIONS, MOST)[0].sum(axis=1) for seed in range(60)], axis=0)
    number = smallest_fixed(curve, called)
    assert number is not None
    truth = float(np.mean([run.trials.sum() for run in runs])) / (MODELS * QUESTIONS * number)
    found = [compare_with_fixed(one, run.counts, 0.95, seed) for seed, run in enumerate(runs[:6])]
    costs = [each.cost for each in found if each is not None]
    assert len(costs) == 6
    assert np.mean(costs) == pytest.approx(truth, abs=3.0 * float(np.std(costs, ddof=1)) / 6**0.5)
    assert sum(each.low <= truth <= each.high for each in found if each is not None) >= 4, "80% intervals"


@pytest.mark.slow
def test_the_same_outcomes_give_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORLDS", 5)
    counts = run_of(small(), 3).counts
    first, again, other = (compare_with_fixed(small(), counts, 0.95, seed) for seed in (0, 0, 1))
    assert first is not None and first == again != other
    assert first.worlds == 5
    assert 4 <= first.trials <= MOST
    assert 0 <= first.low < first.cost < first.high


def test_what_a_run_asks_ahead_is_in_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORLDS", 5)
    runs: list[Controller] = []
    monkeypatch.setattr(module, "drive_rounds", lambda *one: runs.append(drive_rounds(*one)))
    ahead = replace(small(), pace=Pace(lookahead=3, held=True))
    found = compare_with_fixed(ahead, run_of(ahead, 3).counts, 0.95)
    asked, judged = (sum(int(getattr(run, of).sum()) for run in runs) for of in ("arrived", "trials"))
    assert found is not None and found.trials == pytest.approx(asked / (5 * MODELS * QUESTIONS)) and asked > judged


@pytest.mark.parametrize(
    "changed",
    [
        lambda one: replace(one, objective=Best()),
        lambda one: replace(one, estimator="bayes"),
        lambda one: replace(one, first=np.full((MODELS, QUESTIONS), 4)),
        lambda one: replace(one, trials=Trials(4, 10**6)),
    ],
    ids=["another objective", "another score", "trials beforehand", "too many"],
)
def test_what_cannot_be_compared_is_not(changed: Callable[[Plan], Plan]) -> None:
    assert compare_with_fixed(changed(small()), np.full((MODELS, QUESTIONS, 2), 4), 0.95) is None


def test_a_question_without_an_outcome_says_too_little() -> None:
    counts = np.full((MODELS, QUESTIONS, 2), 4)
    counts[1, 2] = 0
    assert compare_with_fixed(small(), counts, 0.95) is None


class TestOfAStoredRun:
    @pytest.fixture
    def finished(self, tmp_path: Path) -> Path:
        played = Played(tmp_path / "run", prepared(tmp_path))
        played.finish()
        return tmp_path / "run"

    def test_it_is_kept_and_shown_by_later_reports(self, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        report = ["report", str(finished), "--format", "md", "--output", "-"]
        monkeypatch.setattr(module, "WORLDS", 6)
        assert "A fixed design would need" not in CliRunner().invoke(app, report).output
        asked = CliRunner().invoke(app, [*report, "--beside-fixed"])
        assert asked.exit_code == 0, asked.output
        later = CliRunner().invoke(app, report).output
        for text in (asked.output, later):
            assert "answers a question for the same result" in text and "Found by 6 simulations" in text
            assert "without ties within delta, which a fixed design cannot show" in text
        results = read_results(finished)
        assert results is not None and results.cost.beside_fixed is not None
        assert f"{results.cost.beside_fixed.cost:.2f} of that" in later
        vague = replace(results.cost.beside_fixed, low=0.0, high=1.364)
        write_results(finished, replace(results, cost=replace(results.cost, beside_fixed=vague)))
        told = "(80% interval: at most 1.36: which of the two takes fewer is not known)"
        assert told in CliRunner().invoke(app, report).output
        page = CliRunner().invoke(app, ["report", str(finished), "--output", "-"]).output
        assert '"beside_fixed":{' in page

    def test_a_run_that_goes_on_is_not_compared_and_forgets_what_was(
        self, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "WORLDS", 6)
        report = ["report", str(finished), "--format", "md", "--output", "-"]
        assert CliRunner().invoke(app, [*report, "--beside-fixed"]).exit_code == 0
        longer = prepared(tmp_path, trials={"min": 3, "max": 60})
        played = Played(finished, longer)
        played.step(5)
        played.stop()
        results = read_results(finished)
        assert results is not None and results.cost.beside_fixed is None
        refused = CliRunner().invoke(app, [*report, "--beside-fixed"])
        assert refused.exit_code != 0
        told = " ".join(refused.output.split())
        assert "fixed design: it is not finished; trials.max was changed. Remove --beside-fixed" in told, "no more"


def test_the_format_says_what_is_in_it() -> None:
    assert RunCost.__dataclass_fields__["beside_fixed"].default is None
    assert list(BesideFixed.__dataclass_fields__) == ["called", "trials", "number", "cost", "low", "high", "worlds"]
