"""The decision sections of a configuration by themselves, and the pace that `trials.optimize` selects."""

from pathlib import Path

import numpy as np
import pytest

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.decisions import Decisions, TrialsConfig
from adaptive_eval.config.load import load_decisions
from adaptive_eval.config.pace import make_pace
from adaptive_eval.config.planning import plan_on
from adaptive_eval.core import Bench, Pace
from adaptive_eval.core.objectives import Baseline
from adaptive_eval.core.optimal import Optimal

NAMES = ("a", "b", "c")


def load(*overrides: str) -> Decisions:
    return load_decisions(None, overrides, NAMES)


def test_every_problem_is_listed_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "trials: {min: 4, max: 2}\nobjective: {kind: baseline, baseline: d}\nstoping: {delta: 0}\nmodels: 7\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_decisions(path, ["budget.trials=no"], NAMES)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{path}: 4 problems"
    assert "line 1: trials.max must be at least trials.min, which is 4" in lines[1]
    assert "line 2: objective.baseline must be the name of a model, but got 'd'; the models are a, b, c" in lines[2]
    assert "line 3: stoping is not a known key" in lines[3]
    assert "--set budget.trials: budget.trials must be a whole number" in lines[4]


def test_a_secret_in_an_unread_section_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("models:\n- {name: a, api_key: sk-abcdefghijklmnopqrstuvwx}\n")
    assert load_decisions(path, (), NAMES).trials.max == 80


def test_decisions_alone_make_a_plan() -> None:
    bench = Bench(3, 5, np.array([0.0, 1.0]))
    plan = plan_on(bench, load("objective={kind: baseline, baseline: c}", "trials.max=20"), NAMES)
    assert plan.bench is bench
    assert plan.objective == Baseline(2)
    assert plan.trials.max == 20


@pytest.mark.parametrize(
    ("questions", "max_trials", "lookahead"),
    [(30, 80, 12), (15, 80, 12), (1, 80, 12), (30, 16, 2), (30, 4, 1), (90, 80, 4), (450, 80, 0), (10_000, 80, 0)],
)
def test_rounds_run_ahead_by_trials_and_by_a_part_of_the_horizon(
    questions: int, max_trials: int, lookahead: int
) -> None:
    trials = TrialsConfig(min=1, max=max_trials, optimize="time")
    held = Pace(lookahead=lookahead, opening=round(0.15 * max_trials), dedicated_servers=True)
    assert make_pace(trials, questions) == held
    assert make_pace(trials.model_copy(update={"optimize": "cost"}), questions) == Pace()


def test_the_rule_starts_where_the_pace_has_its_first_look() -> None:
    rule = plan_on(Bench(3, 30, np.array([0.0, 1.0])), load("trials.optimize=time"), NAMES).rule
    assert isinstance(rule, Optimal) and rule.start == 12 / 80
