"""Runs whose judge compares all models with one of them, which is asked first: whole lives of them, over HTTP."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from gated import GatedServer
from live_runs import ENDED, MODELS, Found, Site, kill, small_world, stored, trials_in, wait_for_trials
from opponents import DEPTH, IN_ALL, OPPONENT, OTHERS, QUESTIONS, opponent_of, results_of, settings, texts_of
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.errors import ExitCode
from adaptive_eval.record.restore import open_run
from adaptive_eval.simulate.answering import right_answer
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store import OpponentAnswered, RunReader, events_of_kind
from adaptive_eval.store.database import DATABASE_FILE


@pytest.fixture(scope="module")
def fair_url() -> Iterator[str]:
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge())) as url:
        yield url


def answered(site: Site, name: str = "run") -> list[OpponentAnswered]:
    with closing(RunReader.open(site.directory(name))) as reader:
        return events_of_kind(reader.events(), OpponentAnswered)


def used(directory: Path) -> tuple[int, int]:
    """Trials and tokens, by SQL."""
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as database:
        trials, tokens = database.execute("SELECT count(*), total(tokens) FROM trials").fetchone()
        return int(trials), int(tokens)


def report_of(site: Site, name: str = "run") -> str:
    told = CliRunner().invoke(app, ["report", str(site.directory(name)), "--format", "md", "--output", "-"])
    assert told.exit_code == 0, told.output
    return told.stdout


def by_hand(site: Site, url: str, name: str = "hand") -> Found:
    """The same as two runs: one of the opponent alone, and one that compares with its answers."""
    alone = [{"name": OPPONENT, "base_url": url}]
    precise = {"kind": "precision", "half_width": 1e-9}
    config = site.write("alone", models=alone, trials={"min": DEPTH, "max": DEPTH}, objective=precise)
    assert site.run(config, "--run-dir", str(site.directory("alone"))).exit_code in ENDED
    changed = settings(url, {"run": str(site.directory("alone")), "model": OPPONENT})
    others = [{"name": model, "base_url": url} for model in OTHERS]
    assert (
        site.run(site.write(name, **changed | {"models": others}), "--run-dir", str(site.directory(name))).exit_code
        in ENDED
    )
    return Found.of(site.directory(name))


def test_it_is_what_two_runs_by_hand_would_have_found(site: Site, fair_url: str) -> None:
    ended = site.run(site.write(**settings(fair_url)))
    assert ended.exit_code in ENDED, ended.output
    assert f"{DEPTH} answers of {OPPONENT} to each of {QUESTIONS} questions" in ended.stdout
    found = Found.of(site.directory())
    assert found == by_hand(site, fair_url)
    assert {model for model, _, _ in found.outcomes} == set(OTHERS)
    others = texts_of(opponent_of(site))
    assert set(others) == {(f"q{at}", trial) for at in range(QUESTIONS) for trial in range(DEPTH)}
    for trial in stored(site):
        right = f"{{{right_answer(trial.question)}}}"
        own, other = right in trial.answer.text, right in others[trial.question, trial.trial % DEPTH]
        assert trial.signals["verdict"] == ("tie" if own == other else "better" if own else "worse")


def test_its_answers_are_kept_counted_and_asked_for_once(site: Site, fair_url: str) -> None:
    config = site.write(**settings(fair_url))
    assert site.run(config).exit_code in ENDED
    results, found = results_of(site), Found.of(site.directory())
    (row,) = results.cost.beside
    assert (row.what, row.model, row.trials, row.tokens) == ("opponent", OPPONENT, *used(opponent_of(site)))
    (event,) = answered(site)
    assert (event.model, event.least, event.most, event.trials) == (OPPONENT, DEPTH, DEPTH, IN_ALL)
    assert [model.name for model in results.models if model.name == OPPONENT] == []
    (caution,) = [one for one in results.warnings if one.kind == "opponent"]
    assert "conditional on these" in caution.text and caution.text in " ".join(report_of(site).split())
    with open_run(site.directory()) as read:
        again = read.recompute_results(running=False)
    assert again is not None and again.cost.beside == results.cost.beside and again.models == results.models
    shutil.rmtree(opponent_of(site))
    assert site.run(config).exit_code in ENDED
    assert not opponent_of(site).exists() and Found.of(site.directory()) == found


@pytest.mark.slow
def test_its_answers_are_a_run_that_others_can_be_compared_with(site: Site, fair_url: str) -> None:
    assert site.run(site.write(**settings(fair_url))).exit_code in ENDED
    found, kept = Found.of(site.directory()), opponent_of(site)
    against = {"run": str(kept), "model": OPPONENT}
    others = [{"name": name, "base_url": fair_url} for name in OTHERS]
    later = site.write("later", **settings(fair_url, against, models=others))
    assert site.run(later, "--run-dir", str(site.directory("later"))).exit_code in ENDED
    assert Found.of(site.directory("later")) == found
    recorded = [{"name": "ada", "recorded": str(site.directory())}, others[1]]
    placed = site.write("placed", **settings(fair_url, against, models=recorded, objective="place"))
    ended = site.run(placed, "--run-dir", str(site.directory("placed")))
    assert ended.exit_code in ENDED, ended.output
    scores = [{row.name: row.score for row in results_of(site, name).models} for name in ("run", "placed")]
    assert scores[0]["ada"] == scores[1]["ada"]


@pytest.mark.slow
def test_a_run_goes_on_with_more_models_and_a_higher_horizon(site: Site, fair_url: str) -> None:
    models = [{"name": name, "base_url": fair_url} for name in (OPPONENT, "cyd", "ada")]
    alone = {"objective": {"kind": "threshold", "value": 0.5}}
    assert site.run(site.write(**settings(fair_url, models=models[:2], **alone))).exit_code in ENDED
    before, answers = Found.of(site.directory()).outcomes, texts_of(opponent_of(site))
    larger = {"trials": {"min": 3, "max": 10}, **alone}
    assert site.run(site.write(**settings(fair_url, models=models, **larger))).exit_code in ENDED
    after = Found.of(site.directory()).outcomes
    assert before.items() <= after.items() and {model for model, _, _ in after} == set(OTHERS)
    assert len(answered(site)) == 1 and texts_of(opponent_of(site)) == answers
    changed = settings(fair_url, {"model": OPPONENT, "trials": DEPTH + 1}, models=models, **larger)
    refused = site.run(site.write(**changed))
    assert refused.exit_code == ExitCode.CONFIGURATION and "opponent.trials" in refused.output
    warmer = [{**models[0], "sampling": {"temperature": 0.9}}, *models[1:]]
    refused = site.run(site.write(**settings(fair_url, models=warmer, **larger)))
    assert refused.exit_code == ExitCode.CONFIGURATION and "opponent.sampling.temperature" in refused.output
    assert Found.of(site.directory()).outcomes == after


def test_who_cannot_be_had_is_waited_for_by_all(site: Site, fair_url: str) -> None:
    models = [{"name": name, "base_url": fair_url} for name in MODELS]
    away = [{**one, "base_url": "http://127.0.0.1:9/v1"} if one["name"] == OPPONENT else one for one in models]
    quick = {"concurrency": {"in_flight": 8, "patience": 0, "attempts": 1}}
    ended = site.run(site.write(**settings(fair_url, models=away, **quick)))
    assert ended.exit_code in {ExitCode.SPENT, ExitCode.ENDPOINTS}, ended.output
    assert not trials_in(site.directory()) and not answered(site)
    report_of(site)
    assert site.run(site.write(**settings(fair_url, models=models, **quick))).exit_code in ENDED
    assert trials_in(opponent_of(site)) == IN_ALL and {trial.model for trial in stored(site)} == set(OTHERS)


def test_the_caps_are_on_answers_of_both_parts_and_on_verdicts(site: Site, fair_url: str) -> None:
    sure = {
        "stopping": {"rule": {"use": "published", "options": {"threshold": 50}}, "prior": "uniform"},
        "trials": {"min": 3, "max": 60},
    }
    ended = site.run(site.write(**settings(fair_url, budget={"trials": IN_ALL - 1}, **sure)))
    assert ended.exit_code == ExitCode.SPENT and "No answers were requested" in ended.stdout
    assert not trials_in(opponent_of(site)) and not trials_in(site.directory())
    cap = IN_ALL + len(OTHERS) * QUESTIONS * 5
    assert site.run(site.write(**settings(fair_url, budget={"trials": cap}, **sure))).exit_code == ExitCode.SPENT
    assert trials_in(opponent_of(site)) == IN_ALL
    assert cap - IN_ALL - len(OTHERS) * QUESTIONS < trials_in(site.directory()) <= cap - IN_ALL
    results = results_of(site)
    grading = sum(row.grading.tokens for row in results.models if row.grading is not None)
    spent = used(opponent_of(site))[1] + used(site.directory())[1]
    assert results.cost.in_all("tokens") == spent and 0 < grading < used(site.directory())[1]


@pytest.mark.slow
def test_another_judge_compares_the_same_answers(site: Site, fair_url: str) -> None:
    assert site.run(site.write(**settings(fair_url))).exit_code in ENDED
    before = Found.of(site.directory()).outcomes
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(position_bias=1.0))) as url:
        other = settings(fair_url)
        other["grader"] = {**other["grader"], "server": {"base_url": url, "model": "judge"}}  # type: ignore[dict-item]
        told = CliRunner().invoke(app, ["regrade", str(site.directory()), "--config", str(site.write(**other))])
        assert told.exit_code == 0, told.output
        trials = stored(site)
        assert {trial.signals["verdict"] for trial in trials} == {"tie"} and len(trials) == len(before)
        assert site.run(site.write(**other)).exit_code in ENDED
    assert len(answered(site)) == 1


@pytest.mark.parametrize(
    ("against", "changes", "why"),
    [
        ({"model": "eve"}, {}, "the models are ada, bob, cyd"),
        ({"model": OPPONENT, "run": "runs/older", "trials": 2}, {}, "of an earlier one all answers are taken"),
        (None, {"objective": {"kind": "baseline", "baseline": OPPONENT}}, "{kind: threshold, value: 0.5}"),
        (None, {"objective": {"kind": "pairs", "pairs": [["ada", OPPONENT]]}}, "{kind: threshold, value: 0.5}"),
        (None, {"prior_evidence": {"greedy": True}}, "comparisons with other answers"),
        (None, {"opponent": {"name": "eve", "base_url": "http://127.0.0.1:9/v1"}}, "is written by runs"),
        (None, {"models": [{"name": "bob", "recorded": "runs/older"}, {"name": "ada"}, {"name": "cyd"}]},
         "{run: runs/older, model: bob}"),
        (None, {"models": [{"name": "bob"}, {"name": "ada", "recorded": "runs/older"}, {"name": "cyd"}]},
         "{run: runs/older/opponent, model: bob}"),
        (None, {"models": [{"name": "bob"}, {"name": "ada"}]}, "must be two or more for the objective ranking"),
        (None, {"models": [{"name": "bob"}, {"name": "ada"}, {"name": "cyd", "price": {"input": 1, "output": 1}}],
                "budget": {"usd": 1.0}}, "bob, ada"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_told_before_anything_is_asked(
    site: Site, fair_url: str, against: object, changes: dict[str, object], why: str
) -> None:
    if isinstance(listed := changes.get("models"), list):
        models = [one if "recorded" in one else {**one, "base_url": fair_url} for one in listed]
        changes = {**changes, "models": models}
    told = CliRunner().invoke(app, ["validate", str(site.write(**settings(fair_url, against, **changes)))])
    assert told.exit_code == ExitCode.CONFIGURATION, told.output
    assert why in " ".join(told.output.split()), told.output


def test_logs_are_not_compared_with_answers_that_a_run_asks_for(site: Site, fair_url: str) -> None:
    (site.folder / "log.csv").write_text("model,question,trial,score\nada,q0,0,1\n")
    config = site.write(**settings(fair_url))
    told = CliRunner().invoke(
        app, ["import", str(site.folder / "log.csv"), "--config", str(config), "--to", str(site.directory())]
    )
    assert told.exit_code == ExitCode.CONFIGURATION and "import its answers by themselves" in told.output, told.output


@pytest.mark.slow
def test_a_kill_in_either_part_changes_nothing(site: Site, fair_url: str, slow_url: str) -> None:
    with serving(GatedServer(small_world(), 7)) as url:
        slow = [{"name": name, "base_url": url if name == OPPONENT else fair_url} for name in MODELS]
        process = site.start(site.write(**settings(fair_url, models=slow, concurrency=64)))
        assert wait_for_trials(opponent_of(site), 5, process)
        kill(process)
    before = Found.of(opponent_of(site)).outcomes
    assert 5 <= len(before) < IN_ALL and not trials_in(site.directory())
    slow = [{"name": name, "base_url": slow_url if name == "cyd" else fair_url} for name in MODELS]
    process = site.start(site.write(**settings(fair_url, models=slow)))
    assert wait_for_trials(site.directory(), 6, process)
    kill(process)
    assert before.items() <= Found.of(opponent_of(site)).outcomes.items()
    assert site.run(site.write(**settings(fair_url))).exit_code in ENDED
    assert Found.of(site.directory()) == by_hand(site, fair_url)
