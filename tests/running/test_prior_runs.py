"""A run may begin with outcomes of an earlier one as R0, which it stores."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from live_runs import MODELS, EndedRuns, RunOutcome, Site
from stored_runs import events_in

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import PriorTaken
from adaptive_eval.running.prior_outcomes import prior_counts

FINISHED = {ExitCode.REACHED, ExitCode.SPENT}


def first_outcomes(directory: Path, depth: int) -> dict[tuple[str, str], list[int]]:
    """The categories of the first trials of each cell, in their order."""
    outcomes: dict[tuple[str, str], list[int]] = {}
    for (model, question, trial), category in sorted(RunOutcome.of(directory).outcomes.items()):
        if trial < depth:
            assert category is not None
            outcomes.setdefault((model, question), []).append(category)
    return outcomes


@pytest.fixture
def earlier(site: Site, ended_runs: EndedRuns) -> Path:
    """A finished run with 4 trials a question before its first look."""
    return ended_runs.copy(site, site.directory("earlier"), trials={"min": 4, "max": 8})


def run_with(site: Site, section: dict[str, object], **changes: object) -> str:
    """The messages of a run that takes R0."""
    config = site.write(prior=section, **{"seed": 1, "trials": {"min": 3, "max": 8}, **changes})
    ended = site.run(config)
    assert ended.exit_code in FINISHED, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_one_greedy_answer_to_each_question_may_come_first(site: Site) -> None:
    once = {"trials": {"min": 1, "max": 1}, "sampling": {"temperature": 0, "max_tokens": 2000}}
    greedy = site.write("greedy", **once)
    assert site.run(greedy, "--run-dir", str(site.directory("greedy"))).exit_code in FINISHED
    section = {"run": str(site.directory("greedy"))}
    output = site.run(site.write(prior=section, trials={"min": 3, "max": 8}), "--dry-run").stdout
    run_with(site, section)
    results = site.results()
    (caution,) = (warning["text"] for warning in results["warnings"] if warning["kind"] == "prior")
    changed = "sampling settings differ from this run's (ada.temperature: 0.0 → 0.6, bob."
    assert changed in caution and changed in output
    assert [row["prior_depth"] for row in results["models"]] == [1.0, 1.0, 1.0]
    assert all(row["score_without_prior"] is not None for row in results["models"])
    (event,) = events_in(site.directory(), PriorTaken)
    assert event.outcomes == {
        name: {f"q{at}": first_outcomes(site.directory("greedy"), 1)[name, f"q{at}"] for at in range(8)}
        for name in MODELS
    }


@pytest.mark.slow
def test_the_earlier_run_is_read_only_once(site: Site, earlier: Path) -> None:
    section: dict[str, object] = {"run": str(earlier)}
    run_with(site, section, budget={"trials": 100})
    before = RunOutcome.of(site.directory())
    shutil.rmtree(earlier)
    run_with(site, section, budget={"trials": 100})
    assert RunOutcome.of(site.directory()) == before
    run_with(site, section, trials={"min": 3, "max": 30})
    assert len(RunOutcome.of(site.directory()).outcomes) > len(before.outcomes)


@pytest.mark.slow
def test_a_model_that_joins_later_gets_its_prior_outcomes(site: Site, earlier: Path) -> None:
    models = [{"name": name, "base_url": site.base_url} for name in MODELS]
    section: dict[str, object] = {"run": str(earlier)}
    run_with(site, section, models=models[:2])
    run_with(site, section, models=models)
    before, after = [event.outcomes for event in events_in(site.directory(), PriorTaken)]
    assert before.keys() == set(MODELS[:2])
    assert after.keys() == set(MODELS)
    assert [row["prior_depth"] for row in site.results()["models"]] == [3.0] * 3, "no more than the first look"


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ({"run": "nowhere"}, {}, "nowhere has no run"),
        ({}, {"rubric": {"categories": [{"name": "no", "weight": 0}, {"name": "yes", "weight": 2,
          "when": {"is_correct": True}}]}}, "was graded by another rubric"),
        ({"models": {"eve": "ada"}}, {}, "cannot serve 'eve'"),
        ({"models": {"ada": "eve"}}, {}, "has no model 'eve'; its models are ada, bob, cyd"),
        ({}, {"questions": {"path": "other.jsonl"}}, "has none of the questions of this run"),
        ({}, {"questions": {"path": "changed.jsonl"}}, "asked ada another text as question 'q0'"),
        ({}, {"prompt": "{prompt} Think."}, "asked ada another text as question 'q0'; R0 needs outcomes of the same"),
        ({}, {"grader": "exact"}, "was graded by another grader, or with other settings"),
    ],
)  # fmt: skip
def test_invalid_prior_runs_are_refused_and_nothing_begins(
    site: Site, earlier: Path, section: dict[str, object], changes: dict[str, object], message: str
) -> None:
    rows = [json.loads(line) for line in (site.folder / "questions.jsonl").read_text().splitlines()]
    for name, change in (("other", {"id": "other"}), ("changed", {"prompt": "something else?"})):
        (site.folder / f"{name}.jsonl").write_text(json.dumps({**rows[0], **change}))
    ended = site.run(site.write(prior={"run": str(earlier), **section}, **changes))
    assert ended.exit_code in (ExitCode.CONFIGURATION, ExitCode.FAILED)
    assert message in ended.stderr
    assert not site.directory().exists()


def test_a_run_cannot_be_its_own_prior(site: Site, earlier: Path) -> None:
    ended = site.run(site.write("earlier", prior={"run": str(earlier)}), "--run-dir", str(earlier))
    assert ended.exit_code == ExitCode.CONFIGURATION
    assert "is the run itself" in ended.stderr


def test_a_run_without_a_complete_first_round_has_no_r0(site: Site, earlier: Path) -> None:
    import sqlite3

    with closing(sqlite3.connect(earlier / "run.sqlite")) as connection, connection:
        connection.execute("DELETE FROM trials WHERE number = 3 AND question = 1")
    ended = site.run(site.write(prior={"run": str(earlier)}))
    assert ended.exit_code == ExitCode.CONFIGURATION
    assert "has no complete first round of any model of this run" in ended.stderr


def test_places_that_no_outcome_has_and_repeated_ones_count_no_cut_answer() -> None:
    prior = PriorTaken({}, "earlier", {"ada": {"q0": [1, 0]}}, (), {"ada": {"q0": [-3, -1, 1, 1, 2]}})
    unsure = prior_counts(prior, ["ada"], ["q0"], np.full((1, 1), 4), 2).unsure
    assert unsure is not None and unsure.tolist() == [[[1, 0]]]
