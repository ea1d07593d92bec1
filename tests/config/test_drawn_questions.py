"""`trials.draw`: what it needs beside it, and the plan that it makes."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.checks import may_draw
from adaptive_eval.config.load import load_config
from adaptive_eval.config.planning import RunFacts, make_plan
from adaptive_eval.config.prepare import prepare
from adaptive_eval.core.types import NO_COST
from adaptive_eval.report.words import decisions_in_words, run_in_words

DRAWN: dict[str, object] = {"min": 1, "max": 1, "draw": 100}
BASELINE: dict[str, object] = {"objective": {"kind": "baseline", "baseline": "model-01"}}
SETTINGS: dict[str, object] = {
    "questions": {"world": "many_questions", "shuffle": True},
    "models": [{"name": f"model-0{number}", "simulate": True} for number in (1, 2, 3)],
    "grader": "numeric",
    "trials": DRAWN,
}


def written(folder: Path, **changes: object) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(SETTINGS | changes))
    return path


def test_the_plan_is_one_of_blocks(tmp_path: Path) -> None:
    prepared = prepare(load_config(written(tmp_path)))
    plan = prepared.plan
    assert (plan.drawn, plan.trials.min, plan.trials.max) == (100, 1, 1)
    assert plan.opening.sum(axis=1).tolist() == [100, 100, 100] and plan.opening[:, :100].all()
    assert getattr(plan.rule, "start", None) == pytest.approx(100 / 2000)
    assert prepared.config.trials.optimize == "cost"
    words = decisions_in_words(prepared.config, {}, began_at=1, imported=False)
    assert words.allocation.endswith("one trial of each in random order, with a look after every 100.")
    assert words.prior.startswith("Questions were drawn at random")


def test_looks_of_the_rule_optimal_lie_as_blocks_do(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, stopping={"rule": "optimal"}))
    spacing = make_plan(config, prepare(config).questions, (NO_COST,) * 3).spacing
    assert spacing is not None and spacing.step == pytest.approx(2 * 100 / 2000)
    assert spacing.finest == pytest.approx(0.5 * 100 / 2000)
    assert run_in_words(prepare(config)).endswith("one trial of each in blocks of 100")
    words = decisions_in_words(config, {}, began_at=1, imported=False)
    assert "less than the share of one trial of every question that is left" in words.rule


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"questions": {"world": "many_questions"}}, "questions.shuffle must be true with trials.draw"),
        ({"trials": {"min": 1, "max": 4, "draw": 100}}, "trials.draw is for one trial of each question"),
        ({"trials": {"draw": 100}}, "set `min: 1` and `max: 1`, too"),
        ({"trials": {"min": 1, "max": 1, "draw": 10}}, "trials.draw"),
        ({"trials": DRAWN | {"optimize": "time"}}, "trials.optimize must be answers"),
        ({"objective": {"kind": "threshold", "value": 0.5}}, "objective.kind must compare models"),
        ({"objective": {"kind": "precision", "half_width": 0.05}}, "objective.kind must compare models"),
        ({"stopping": {"rule": "published"}}, "stopping.rule compares Bayes@N"),
        (BASELINE | {"trials": DRAWN | {"seeds": "coupled"}}, "trials.seeds must not be coupled"),
        ({"prior": {"run": "runs/earlier"}}, "prior cannot be combined with trials.draw"),
        ({"report": {"metrics": ["pass@2"]}}, "report.metrics cannot be combined with trials.draw"),
    ],
)
def test_settings_that_exclude_it_are_reported(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(written(tmp_path, **changes))
    assert message in str(refused.value)


def test_trials_that_are_there_and_more_than_the_questions_are_refused(tmp_path: Path) -> None:
    """As those of an import are."""
    questions = {"world": "many_questions", "shuffle": True, "limit": 80}
    with pytest.raises(ConfigError, match="trials.draw is 100, but there are 80 questions"):
        prepare(load_config(written(tmp_path, questions=questions)))
    config = load_config(written(tmp_path))
    first = np.ones((3, 2000), dtype=int)
    with pytest.raises(ConfigError, match="there are trials already; remove it"):
        make_plan(config, prepare(config).questions, (NO_COST,) * 3, RunFacts(first))


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({"trials": {"min": 4, "max": 8}}, True),
        ({"trials": {"min": 4, "max": 8, "optimize": "time"}, "questions": {"world": "many_questions"}}, True),
        ({}, False),  # it does
        ({"trials": {}, "objective": {"kind": "precision", "half_width": 0.05}}, False),
        ({"trials": {}, "stopping": {"rule": "published"}}, False),
        ({"trials": {}, "report": {"metrics": ["pass@2"]}}, False),
    ],
)
def test_questions_may_be_drawn_where_nothing_stands_in_the_way(
    tmp_path: Path, changes: dict[str, object], may: bool
) -> None:
    assert may_draw(load_config(written(tmp_path, **changes))) is may
