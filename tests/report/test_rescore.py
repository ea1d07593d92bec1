"""A stored run under other rubrics, and a rubric on many trials at once."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_line import typed
from forging import forging
from live_runs import ENDED, MODELS, EndedRuns, Site
from played import Played, prepared
from stored_runs import stored_trials

from adaptive_eval.base.errors import ExitCode, GraderError
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.frozen import NOTHING_FROZEN, Facts, FrozenThresholds, fact_numbers, fit_frozen
from adaptive_eval.graders.rubric import Rubric, RubricConfig, open_rubric
from adaptive_eval.graders.types import SignalValue, answer_facts
from adaptive_eval.report.rescore import (
    NO_CATEGORY,
    OWN_RUBRIC,
    RescoredRubric,
    RubricUnavailable,
    classify_trials,
    fit_thresholds,
    missing_signals,
    rescore,
)
from adaptive_eval.report.results_file import read_results
from adaptive_eval.show.rescored import rubric_blocks
from adaptive_eval.show.text import as_text
from adaptive_eval.store.errors import DATABASE_FILE
from scorio.categorical import SCHEMATA, Thresholds
from scorio.categorical.variables import PERCENTILES

LOGGED = {"grader": "math", "sampling": {"temperature": 0.6, "max_tokens": 2000, "logprobs": True}}
SHORT = {
    "categories": [
        {"name": "brief", "weight": 1, "when": {"is_correct": True, "completion_tokens": {"below": 251}}},
        {"name": "right", "weight": 0.5, "when": {"is_correct": True}},
        {"name": "rest", "weight": 0},
    ]
}


@pytest.fixture
def run(site: Site, ended_runs: EndedRuns) -> Path:
    return ended_runs.copy(site, **LOGGED)


def named(rubrics: tuple[RescoredRubric, ...]) -> dict[str, RescoredRubric]:
    return {rubric.name: rubric for rubric in rubrics}


@pytest.mark.slow
def test_all_twelve_rubrics_are_shown_and_the_run_is_unchanged(run: Path) -> None:
    before = (run / DATABASE_FILE).read_bytes()
    rescored = rescore(run)
    assert (run / DATABASE_FILE).read_bytes() == before
    rubrics = named(rescored.rubrics)
    assert list(rubrics)[0] == OWN_RUBRIC and rubrics["length_robust"].models == rubrics["exact_match"].models
    why = {rubric.name: rubric.why for rubric in rescored.unavailable}
    assert why == {
        "ood_robustness": "needs prompt_bpt, which no trial has",
        "verifier_only": "needs verifier_a, verifier_b, verifier_c, which no trial has",
        "verifier_probe": "needs verifier_a, which no trial has",
    }
    assert rubrics["efficiency_adjusted"].fitted == ("len_p33", "len_p66")
    assert rubrics["exact_match"].assumed == {"verifier_c": 0.0}


def test_the_report_says_once_what_all_rubrics_share(run: Path) -> None:
    rescored = rescore(run)
    rubric, why = rescored.rubrics[0], "needs has_box, which no trial has"
    lacking = tuple(RubricUnavailable(name, why) for name in ("format_aware", "strict_compliance"))
    twice = replace(rescored, rubrics=(rubric, replace(rubric, name="again")), unavailable=lacking)
    alike = as_text(rubric_blocks(twice))
    assert "Ranks are the same under all rubrics." in alike and "Rank\n" not in alike
    assert alike.endswith("format_aware, strict_compliance: needs has_box, which no trial has.")
    worse = replace(rubric, name="worse", models=(replace(rubric.models[0], rank=9), *rubric.models[1:]))
    assert "Rank\n" in as_text(rubric_blocks(replace(rescored, rubrics=(rubric, worse))))


def check_own_rubric(run: Path) -> None:
    """Scores under it are the results of the run."""
    models, rows = rescore(run).rubrics[0].models, read_results(run).models
    assert [(model.name, model.rank) for model in models] == [(row.name, row.rank) for row in rows]
    for model, row in zip(models, rows, strict=True):
        assert model.score == pytest.approx(row.score) and model.sigma == pytest.approx(row.sigma)
        assert sum(model.counts) == row.trials


def test_an_edited_run_is_rescored_by_the_trials_that_its_newest_look_has(run: Path, site: Site) -> None:
    """Rounds are stored as they were asked for; after an edit a look may end in the middle of one."""
    check_own_rubric(run)
    remaining = [{"name": name, "base_url": site.base_url} for name in MODELS[:2]]
    site.run(site.write(**LOGGED, models=remaining), code=ENDED)
    check_own_rubric(run)


def test_scores_are_averages_of_what_was_worked_out_by_hand(run: Path, site: Site) -> None:
    path = site.folder / "short.yaml"
    path.write_text(yaml.safe_dump({"rubric": SHORT}))
    result = typed("rescore", run, "--rubric", path, "--format", "json", code=0)
    short = json.loads(result.stdout)["rescoring"]["rubrics"][1]
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in stored_trials(run):
        worth = 1.0 if trial.answer.completion_tokens <= 250 else 0.5
        values[trial.model][trial.question].append(worth if trial.signals["is_correct"] else 0.0)
    for model in short["models"]:
        by_question = values[model["name"]].values()
        assert model["score"] == pytest.approx(np.mean([np.mean(question_values) for question_values in by_question]))
    assert short["name"] == "short" and short["categories"] == ["brief", "right", "rest"]


def test_trials_of_an_incomplete_round_are_left_out(run: Path) -> None:
    before = rescore(run)
    with forging(run) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(trials)")]
        moved = {name: f"{name} + 1000" for name in ("number", "round")} | {"seq": "seq + 100000"}
        copied = ", ".join(moved.get(name, name) for name in columns)
        database.execute(f"INSERT INTO trials ({', '.join(columns)}) SELECT {copied} FROM trials LIMIT 20")
    assert rescore(run) == before


def test_a_model_that_the_budget_leaves_without_drawn_questions_has_no_score(tmp_path: Path) -> None:
    prepared(tmp_path, questions=60)
    settings = yaml.safe_load((tmp_path / "played.yaml").read_text())
    settings["questions"] = {"path": settings["questions"], "shuffle": True}
    settings |= {"trials": {"min": 1, "max": 1, "draw": 50}, "budget": {"trials": 100}}
    for models in (settings["models"][:2], settings["models"]):
        (tmp_path / "drawn.yaml").write_text(yaml.safe_dump({**settings, "models": models}))
        Played(tmp_path / "run", prepare(load_config(tmp_path / "drawn.yaml"))).finish()
    (joined,) = [model for model in rescore(tmp_path / "run").rubrics[0].models if model.score is None]
    assert joined.name == "cyd" and joined.rank is None


def test_a_run_without_a_look_is_refused(site: Site) -> None:
    config, run = site.write(budget={"trials": 5}), site.directory()
    site.run(config)
    for words in (["rescore", run], ["compare", run, run], ["regrade", run, "--config", config]):
        refused = typed(*words, code=ExitCode.CONFIGURATION)
        assert f" yet, so there is nothing to {words[0]}" in " ".join(refused.stderr.split())


def test_a_terminal_shows_no_markup_and_a_file_has_it(run: Path, tmp_path: Path) -> None:
    shown = typed("rescore", run).stdout
    assert "length_robust" in shown and "No trial has verifier_c:" in shown and "assume 0." in shown
    assert not set("|\\#") & set(shown) and "---" not in shown
    path = tmp_path / "rescored.md"
    assert typed("rescore", run, "--output", path).stdout == f"{path}\n"
    assert "No trial has verifier\\_c: exact\\_match" in path.read_text()
    assert typed("rescore", run, "--format", "md").stdout == path.read_text()


def test_mistakes_in_a_rubric_file_are_reported(run: Path, site: Site) -> None:
    none, bad = site.folder / "none.yaml", site.folder / "bad.yaml"
    none.write_text("trials: {max: 8}\n")
    bad.write_text("rubric: {name: exact_mtach}\n")
    for paths, message in (([none], "has no rubric"), ([bad], "must be a known rubric"), ([none] * 2, "a file twice")):
        refused = typed("rescore", run, *(word for path in paths for word in ("--rubric", path)))
        assert refused.exit_code != 0 and message in refused.output


TRIALS = 400
OWN = RubricConfig.model_validate_json(
    """{"categories": [
        {"name": "cut off", "weight": 0, "when": {"truncated": true}},
        {"name": "short", "weight": 1, "when": {"is_correct": true, "token_ratio": {"below": 0.2}}},
        {"name": "right", "weight": 0.8, "when": {"is_correct": true}},
        {"name": "by text", "weight": 0.3, "when": {"method": "text"}},
        {"name": "rest", "weight": 0.1}
    ]}"""
)


def drawn(seed: int = 0) -> list[Facts]:
    """The facts of trials; some lack log-probabilities, or what a verifier says."""
    rng = np.random.default_rng(seed)
    trials: list[Facts] = []
    for _ in range(TRIALS):
        reason = str(rng.choice(["stop", "stop", "length"]))
        has_logprobs = bool(rng.random() < 0.9)
        answer = Answer(
            *("x", reason, 1, "r", 1.0),
            prompt_tokens=int(rng.integers(10, 90)),
            completion_tokens=int(rng.integers(1, 32768)),
            completion_bpt=float(rng.gamma(2.0)) if has_logprobs else None,
            prompt_bpt=float(rng.gamma(2.0)) if has_logprobs else None,
            signals=frozenset({"truncated"} if reason == "length" else ()),
        )
        a, b, c = rng.dirichlet((1.0, 1.0, 1.0)).tolist()
        grade: dict[str, SignalValue] = {"is_correct": bool(rng.random() < 0.5), "has_box": bool(rng.random() < 0.7)}
        grade |= {"method": str(rng.choice(["text", "number"]))}
        if rng.random() < 0.95:
            grade |= {"verifier_a": a, "verifier_b": b, "verifier_c": c}
        trials.append({**answer_facts(answer), **grade})
    return trials


def one_by_one(rubric: Rubric, trials: list[Facts]) -> list[int]:
    categories = []
    for facts in trials:
        try:
            categories.append(rubric.category(facts))
        except GraderError:
            categories.append(NO_CATEGORY)
    return categories


@pytest.mark.parametrize("name", ["own", *SCHEMATA])
def test_many_at_once_are_as_one_by_one(name: str) -> None:
    trials = drawn()
    config = OWN if name == "own" else RubricConfig(name=name)
    rubric, _ = fit_thresholds(config, trials, ["q"] * TRIALS, NOTHING_FROZEN)
    categories = classify_trials(trials, rubric).tolist()
    assert categories == one_by_one(rubric, trials)
    lacks = any(rubric.needs - facts.keys() for facts in trials)
    assert len(set(categories)) > 2 and (NO_CATEGORY in categories) == (name != "own" and lacks)


def test_a_threshold_is_the_percentile_of_the_trials_that_have_its_signal() -> None:
    trials = drawn(1)
    rubric, frozen = fit_thresholds(
        RubricConfig(name="format_confidence"), trials, ["q"] * TRIALS, FrozenThresholds({"high": 0.5})
    )
    assert frozen.values == {"high": 0.5} and not rubric.lacks
    fitted = fit_frozen(fact_numbers(trials), ["q"] * TRIALS, PERCENTILES, with_medians=True)
    assert fitted.medians == {"q": np.median([facts["completion_tokens"] for facts in trials])}
    thresholds = Thresholds(**fitted.values)
    lengths = fact_numbers(trials)("completion_tokens") / 32768
    assert thresholds.len_p33 == pytest.approx(np.percentile(lengths, PERCENTILES["len_p33"].percent))
    wrong = [facts["completion_bpt"] for facts in trials if not facts["is_correct"] and "completion_bpt" in facts]
    assert thresholds.low_wrong == pytest.approx(np.percentile(np.array(wrong, float), 60))


def test_what_no_trial_has_is_named() -> None:
    of_graders = {"has_box", "method", "verifier_a", "verifier_b", "verifier_c"}
    bare = [{name: value for name, value in facts.items() if name not in of_graders} for facts in drawn(2)]
    assert missing_signals(bare, open_rubric(RubricConfig(name="format_aware"))) == ("has_box",)
    verifier = ("verifier_a", "verifier_b", "verifier_c")
    assert missing_signals(bare, open_rubric(RubricConfig(name="verifier_only"))) == verifier
    assert missing_signals(bare, open_rubric(RubricConfig())) == ()
    assert missing_signals(bare, open_rubric(OWN)) == ("method",)
