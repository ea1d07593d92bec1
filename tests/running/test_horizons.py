"""A run that goes on with other settings, as those that it advises, remembers its own and keeps its looks."""

import json
import re
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from live_runs import ENDED, MODELS, EndedRuns, RunOutcome, Site, models_at
from stored_runs import events_in, stored_header, stored_trials

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.prepare import stored_config
from adaptive_eval.core import conclusions
from adaptive_eval.notes import SettingsChanged
from adaptive_eval.report.reader import RunReader


def looks(site: Site) -> list[dict[str, Any]]:
    return RunOutcome.of(site.directory()).looks


def warnings(site: Site, kind: str) -> list[str]:
    return [entry["text"] for entry in site.results()["warnings"] if entry["kind"] == kind]


@pytest.mark.slow
def test_the_plain_command_goes_on_with_the_settings_of_the_run(site: Site) -> None:
    config = site.write(trials={"min": 2, "max": 3}, budget={"trials": 90})
    assert site.run(config).exit_code == ExitCode.SPENT
    site.run(config, "--set", "trials.max=120", "--set", "budget.trials=2000", code=ExitCode.REACHED)
    decided, outcome = site.results(), RunOutcome.of(site.directory())
    assert sum(row["trials"] for row in decided["models"]) == sum(outcome.looks[-1]["trials"])
    again = site.run(config, code=ExitCode.REACHED)
    assert "settings of an earlier start still apply (budget.trials=2000, trials.max=120)" in again.stderr
    assert RunOutcome.of(site.directory()) == outcome and not warnings(site, "uncounted")
    assert [site.results()[key] for key in ("models", "pairs")] == [decided[key] for key in ("models", "pairs")]
    assert len(events_in(site.directory(), SettingsChanged)) == 1


@pytest.mark.slow
def test_a_setting_changed_in_the_file_or_on_the_command_line_replaces_that_of_the_run(site: Site) -> None:
    site.run(site.write(trials={"min": 2, "max": 3}), "--set", "trials.max=4", "--set", "stopping.confidence=0.9")
    again = site.run(site.write(trials={"min": 2, "max": 6}), code=ENDED)
    assert "(stopping.confidence=0.9)" in again.stderr
    assert "settings changed: " in again.stdout
    configuration = stored_header(site.directory()).configuration
    assert (configuration["trials"]["max"], configuration["stopping"]["confidence"]) == (6, 0.9)
    once_more = site.run(site.folder / "run.yaml", "--set", "stopping.confidence=0.8")
    assert "settings of an earlier start" not in once_more.stderr
    undone = site.run(site.folder / "run.yaml", "--set", "stopping.confidence=")
    assert "settings changed: stopping.confidence" in undone.stdout and "still apply" not in undone.stderr
    again = site.run(site.folder / "run.yaml", "--set", "stopping.confidence=")
    assert again.exit_code in ENDED, "the same command goes on, though it has nothing to undo"
    assert "still apply" not in site.run(site.folder / "run.yaml").stderr
    for text in ("stopping.confidence=", "trials.max=", "models.0.price="):
        refused = site.run(site.folder / "run.yaml", "--set", text, code=ExitCode.CONFIGURATION)
        assert "which would undo a --set of an earlier start" in refused.stderr
    for options in (["--set", "budget.trials=600"], ["--set", "budget="], []):  # a section replaces what was set in it
        assert ("still apply" in site.run(site.folder / "run.yaml", *options).stderr) is False
    fresh = site.run(site.folder / "run.yaml", "--run-dir", site.directory("other"))
    assert "settings of an earlier start" not in fresh.stderr


@pytest.mark.slow
def test_trials_min_of_a_run_without_a_look_can_be_undone(site: Site) -> None:
    config = site.write(trials={"max": 30}, budget={"trials": 100})
    assert "does not cover the first round" in site.run(config, "--set", "trials.min=8").stdout
    assert "still apply (trials.min=8)" in site.run(config).stderr
    undone = site.run(config, "--set", "trials.min=")
    assert undone.exit_code in ENDED and sum(looks(site)[0]["trials"]) == 96, undone.output


def test_settings_that_contradict_the_run_are_refused_with_what_to_type(site: Site, ended_runs: EndedRuns) -> None:
    settings = {"trials": {"min": 2, "max": 6}, "budget": {"trials": 500}}
    ended_runs.copy(site, **settings)
    before = looks(site)
    for lowered, message in (
        ({"trials": {"min": 2, "max": 3}}, "--set trials.max=6"),
        ({"trials": {"min": 3, "max": 6}}, "trials.min cannot change after the first look: it was 2, and is now 3"),
        ({"budget": {"trials": 20}}, "--set budget.trials=500"),
        ({"budget": {"wall_time": "0.001s"}}, "--set budget.wall_time="),
    ):
        assert message in site.run(site.write(**settings | lowered), code=ExitCode.CONFIGURATION).stderr
        assert looks(site) == before
        with closing(RunReader.open(site.directory())) as reader:
            assert len(reader.log.configurations()) == 1
    site.finished(**settings)


@pytest.mark.slow
def test_each_change_of_the_horizon_is_reported_and_changes_no_look(site: Site) -> None:
    before = list[dict[str, Any]]()
    for max_trials in (3, 6, 9):
        ended = site.run(site.write(trials={"min": 2, "max": max_trials}))
        assert ended.exit_code in ENDED and looks(site)[: len(before)] == before, ended.output
        before = looks(site)
    assert "trials.max was raised from 3 to 6 after look" in ended.stdout
    assert [text.split(" after")[0] for text in warnings(site, "horizon")] == [
        "trials.max was raised from 3 to 6",
        "trials.max was raised from 6 to 9",
    ]


@pytest.mark.slow
def test_a_model_that_is_put_back_goes_on_with_its_trials_and_decisions(site: Site) -> None:
    models = [{"name": name, "base_url": site.base_url} for name in MODELS]
    trials, calls = dict[str, int](), list[object]()
    for present in (models, models[:2], models, models[1:], models):
        ended = site.run(site.write(models=present, trials={"min": 2, "max": 3}))
        assert ended.exit_code in ENDED, ended.stderr
        results = site.results()
        now = {row["name"]: row["trials"] for row in results["models"]}
        assert all(now[name] >= trials.get(name, 0) for name in now) and not warnings(site, "uncounted")
        trials |= now
        calls += [pair["called"] for pair in results["pairs"] if (pair["first"], pair["second"]) == MODELS[1:]]
    assert len(calls) == 4 and calls[0] is not None
    assert calls == [calls[0]] * 4, "its decision stands, by the look that made it"


@pytest.mark.slow
def test_the_place_of_the_first_look_stays_when_the_horizon_that_set_it_is_raised(site: Site) -> None:
    """By default it lies at a fifth of `trials.max`, at least at 2 and at most at 4."""
    for max_trials in (6, 20):
        site.finished(trials={"max": max_trials})
        assert stored_config(stored_header(site.directory())).trials.min == 2
        assert "2 trials per question before the first look" in site.report(), "not what a run of 20 begins with"
    refused = site.run(site.write(trials={"max": 20, "min": 4}), code=ExitCode.CONFIGURATION)
    assert "trials.min cannot change after the first look: it was 2, and is now 4" in refused.stderr


def test_the_first_look_of_a_small_budget_stays_when_the_budget_is_raised(site: Site) -> None:
    for budget in (60, 600):  # three and 33 trials of each of six questions by three models
        outcome = site.finished(trials={"max": 20}, budget={"trials": budget})
        assert stored_config(stored_header(site.directory())).trials.min == 2
    assert len(outcome.looks) > 1


@pytest.mark.slow
def test_the_first_look_stays_as_large_as_it_was(site: Site) -> None:
    """Rounds as large as the need begin with a part of the horizon."""
    site.finished(trials={"min": 2, "max": 20})
    refused = site.run(site.write(trials={"min": 2, "max": 20, "optimize": "time"}), code=ExitCode.CONFIGURATION)
    assert "first look came after 2 trials per question" in refused.stderr
    assert "trials.optimize time would place it at 3; keep trials.optimize cost, or" in refused.stderr


@pytest.mark.slow
def test_a_run_that_chooses_its_pace_keeps_the_one_it_began_with(site: Site) -> None:
    """`auto` would take another now: GPUs are named, and the stored run says what it began with."""
    gpus = models_at(site.base_url, gpus=1)
    site.finished(trials={"min": 2, "max": 10, "optimize": "cost"}, models=gpus)
    for name in ("run", "fresh"):
        site.finished(name, trials={"min": 2, "max": 10}, models=gpus)
    assert stored_header(site.directory()).configuration["trials"]["optimize"] == "cost"
    assert stored_header(site.directory("fresh")).configuration["trials"]["optimize"] == "time"


CHEAPEST = {"kind": "cheapest", "delta": "20%"}
REFUSAL = "the price or the gpus of bob are not those of its first answers"


def write(site: Site, bob: float, **changes: object) -> Path:
    models = models_at(site.base_url, price={"input": 1.0, "output": 1.0})
    models[1] |= {"price": {"input": bob, "output": bob}}
    return site.write(**{"models": models, "objective": CHEAPEST, "trials": {"min": 1, "max": 2}, **changes})


def costs_of_bob(site: Site) -> set[float]:
    """What a token of its answers has cost."""
    trials = [trial for trial in stored_trials(site.directory()) if trial.model == "bob"]
    return {round(trial.cost.usd / trial.cost.tokens * 1e6, 6) for trial in trials}


@pytest.mark.slow
@pytest.mark.parametrize("first", [{"budget": {"usd": 0.3}}, {"objective": "ranking"}], ids=["no look", "ranking"])
def test_a_price_stays_that_of_the_first_answers(site: Site, first: dict[str, object]) -> None:
    site.run(write(site, 100.0, **first))
    assert costs_of_bob(site) == {100.0}
    assert REFUSAL in site.run(write(site, 0.5), code=ExitCode.CONFIGURATION).stderr
    assert site.run(write(site, 0.5, objective="ranking")).exit_code != ExitCode.CONFIGURATION
    assert REFUSAL in site.run(write(site, 0.5)).stderr, "at the price of the last start, but not of the first answers"
    assert REFUSAL not in site.run(write(site, 100.0)).stderr


@pytest.mark.slow
def test_answers_of_a_dry_run_at_another_price_are_not_used(site: Site) -> None:
    site.run(write(site, 100.0), "--dry-run")
    assert "the answers of the dry run are not used" in site.run(write(site, 0.5)).stderr
    assert costs_of_bob(site) == {0.5}


@pytest.mark.slow
def test_larger_limits_and_then_a_larger_delta_decide_what_is_open(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever types what the run advises, again and again, gets a decision, though two models are one and the same."""
    monkeypatch.setattr(conclusions, "MAX_TRIALS", 60)
    monkeypatch.setattr(conclusions, "MAX_TIMES", 3)
    models = [{"name": name, "model": name[:3], "base_url": site.base_url} for name in ("ada", "bob", "bob-again")]
    ended = site.run(site.write(models=models, trials={"min": 2, "max": 8}, budget={"trials": 20}))
    changed = list[str]()
    while ended.exit_code != ExitCode.REACHED and len(changed) < 10:
        assert ended.exit_code == ExitCode.SPENT, ended.output
        command = re.findall(r"^ +adaptive-eval (run .*)$", ended.stdout.rpartition("to do ")[2], re.MULTILINE)[0]
        settings = [word.partition("=")[0] for word in shlex.split(command) if "=" in word]
        assert len(settings) == len({*settings}), "a value is replaced, not added"
        changed.append(settings[-1])
        ended = typed(*shlex.split(command.replace("DELTA", "0.3")), "--display", "plain")
    assert ended.exit_code == ExitCode.REACHED, ended.stdout
    assert changed[0] == "budget.trials" and changed[-1] == "stopping.delta" and "trials.max" in changed


def test_a_new_run_has_the_settings_that_earlier_commands_have_set_and_a_folder_of_its_own(site: Site) -> None:
    models = models_at(site.base_url, "ada", "bob")
    gate = site.write(models=models, objective={"kind": "baseline", "baseline": "ada", "gate": True}, trials={"max": 8})
    here, warmer = ("--run-dir", site.folder / "gate"), ("--set", "sampling.temperature=0.7")
    site.run(gate, *here, "--set", "stopping.delta=0.35", *warmer)
    (site.folder / "gate-2").mkdir()
    again = site.run(gate, *here, *warmer)
    (command,) = re.findall(r"for a new build, start over:\n +adaptive-eval (run .*)$", again.stdout, re.MULTILINE)
    assert typed(*shlex.split(command)).exit_code == again.exit_code
    new, old = (json.loads((site.folder / name / "results.json").read_bytes()) for name in ("gate-3", "gate"))
    assert new["decisions"] == old["decisions"] and new["decisions"]["stopping"]["delta"] == 0.35
    assert {row["sampling"]["temperature"] for row in new["models"]} == {0.7}
