"""Stored answers are graded again without a request, also those on which a grader has failed."""

import json
import re
import shlex
from contextlib import closing
from pathlib import Path

import pytest
from command_line import Codes, typed
from live_runs import ENDED, MODELS, EndedRuns, RunOutcome, Site, judge_at, models_at, small_world
from stored_runs import events_in, store_records, stored_events, stored_header, stored_results
from thoroughness import first_of
from typer.testing import Result

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.notes import SettingsChanged, TrialsRegraded
from adaptive_eval.report.ending import find_arguments
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.stored import read_counts
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store.read import LogReader

FRAGILE = """
from pathlib import Path

def grade(text, question):
    if Path(__file__).with_name("mute").exists():
        raise RuntimeError("nothing at all")
    if Path(__file__).with_name("broken").exists() and question.id == "q3" and len(text) > 30:
        raise RuntimeError("no such thing")
    return "{" + question.answer + "}" in text
"""
LABEL = {"model": "ada", "question": "q0", "trial": 0, "label": "correct"}


def regrade(site: Site, config: Path, *options: object, code: Codes = None) -> Result:
    return typed("regrade", site.directory(), "--config", config, *options, code=code)


def label(site: Site) -> Result:
    """Give one label."""
    (labels := site.folder / "labels.jsonl").write_text(json.dumps(LABEL))
    return typed("label", site.directory(), "--from", labels)


@pytest.fixture
def fragile(site: Site) -> Path:
    """A configuration with a grader of the user's own, which fails on one question while the file `broken` is there."""
    (site.folder / "fragile.py").write_text(FRAGILE)
    return site.write(
        trials={"min": 2, "max": 2}, grader={"kind": "python", "function": "fragile:grade"}, grading={"workers": 1}
    )


@pytest.mark.slow
def test_regrade_grades_the_answers_that_the_grader_failed_on(site: Site, fragile: Path) -> None:
    broken = site.folder / "broken"
    broken.touch()
    ended = site.run(fragile, code=ExitCode.SPENT)
    why = "no trial of question 4 of 8 has a grade, so there is no score; on question q3: "
    assert "ada: no grade on question q3: the grader raised RuntimeError: no such thing" in ended.stdout
    assert f"ada is set aside: {why}the grader raised RuntimeError: no such thing" in ended.stdout
    assert f"adaptive-eval regrade {site.directory()}" in ended.stdout
    assert "raise trials.max" not in ended.stdout
    ungraded = [trial for trial, category in RunOutcome.of(site.directory()).outcomes.items() if category is None]
    assert ungraded and {question for _, question, _ in ungraded} == {"q3"}
    some, none = f"stored answers again; {len(ungraded)} got no grade", f"graded 0 of {len(ungraded)} "
    assert f"{none}{some}" in site.run(fragile).output

    assert "the grader failed on" in regrade(site, fragile).stdout
    broken.unlink()
    stored = len(RunOutcome.of(site.directory()).outcomes)
    done = regrade(site, fragile, code=ExitCode.REACHED)
    assert f"graded {stored} answers again: {len(ungraded)} have another category" in done.stdout
    assert None not in RunOutcome.of(site.directory()).outcomes.values()
    assert site.run(fragile).exit_code == ExitCode.SPENT
    assert TrialsRegraded.KIND in [event.kind for event in stored_events(site.directory())]

    (site.folder / "mute").touch()
    before = RunOutcome.of(site.directory()).outcomes
    failed = regrade(site, fragile)
    message = f"failed on each of the {len(before)} answers that it was given, so no grade was changed: the grader r"
    assert failed.exit_code == ExitCode.FAILED and message in " ".join(failed.stderr.split())
    assert RunOutcome.of(site.directory()).outcomes == before


def test_another_grader_grades_every_answer_and_the_run_goes_on_with_it(site: Site) -> None:
    trials = {"min": 2, "max": 2, "optimize": "auto"}
    site.run(site.write(trials=trials))
    before = RunOutcome.of(site.directory())
    contains = site.write(trials=trials, grader="contains")
    command = f"adaptive-eval regrade {site.directory()} --config"
    assert f"{command} {contains}\n" in site.run(contains).stderr
    by_set = ["--set", "grader=exact"]
    assert shlex.join([*command.split(), str(contains), *by_set]) in site.run(contains, *by_set, "--dry-run").stderr
    assert f"graded {len(before.outcomes)} answers again" in regrade(site, contains, code=ExitCode.REACHED).stdout
    goes_on = find_arguments(stored_events(site.directory()))
    assert goes_on == (str(contains), "--run-dir", str(site.directory())), "the first configuration would be refused"
    site.run(contains, code=ExitCode.SPENT)
    assert RunOutcome.of(site.directory()).outcomes.keys() == before.outcomes.keys()
    events = events_in(site.directory(), SettingsChanged)
    changes = [change.path for event in events for change in event.changes]
    assert changes and all(path.startswith("grader") for path in changes), "what nobody has changed is told as changed"
    assert site.run(site.write(trials=trials)).exit_code == ExitCode.CONFIGURATION


def test_a_configuration_with_another_model_or_prompt_is_refused(site: Site, ended_runs: EndedRuns) -> None:
    models = models_at(site.base_url, "ada", "bob", "cyd", "dan")
    ended_runs.copy(site, trials={"min": 2, "max": 2})
    before = stored_events(site.directory())
    refused = regrade(site, site.write(models=models[1:], trials={"min": 2, "max": 2}))
    assert refused.exit_code == ExitCode.CONFIGURATION and "has dan, of which" in refused.stderr
    assert "prompt.template" in regrade(site, site.write(prompt="Think. {prompt}"), code=ExitCode.CONFIGURATION).stderr
    assert stored_events(site.directory()) == before


@pytest.mark.parametrize("by", first_of(["regrade", "label"], 1))
def test_what_changes_no_grade_leaves_every_answer_in_the_scores(site: Site, by: str) -> None:
    """Also those asked ahead of looks, which the scores of a finished run count."""
    config = site.write(trials={"min": 2, "max": 12, "optimize": "time"})
    site.run(config)
    before = stored_results(site.directory())
    done = regrade(site, config) if by == "regrade" else label(site)
    after = stored_results(site.directory())
    assert done.exit_code == ExitCode.REACHED, done.output
    trials, trials_before = ([(row.name, row.trials) for row in results.models] for results in (after, before))
    assert trials == trials_before
    assert by == "label" or [row.score for row in after.models] == [row.score for row in before.models]


COIN = """
from zlib import crc32

def grade(text, question):
    return crc32(text.encode()) % 2 == 0
"""


@pytest.mark.slow
def test_trials_requested_under_earlier_grades_stay_in_the_scores(site: Site) -> None:
    (site.folder / "coin.py").write_text(COIN)
    trials = {"min": 4, "max": 60}
    site.run(site.write(trials=trials), code=ExitCode.REACHED)
    before = stored_results(site.directory())
    assert before.run.status == "finished"
    coin = site.write(trials=trials, grader={"kind": "python", "function": "coin:grade"}, grading={"workers": 1})
    done = regrade(site, coin, code=ExitCode.REACHED)
    after = stored_results(site.directory())
    was, now = ({row.name: row.trials for row in results.models} for results in (before, after))
    assert now == was and not [warning for warning in after.warnings if warning.kind == "uncounted"]
    by_name = {row.name: row.score for row in before.models}
    assert all(row.score not in (None, by_name[row.name]) for row in after.models)
    assert after.run.status == "stopped" and "resuming takes about" in done.stdout

    resumed = site.run(coin, code=ENDED)
    assert "Grades have changed since this run was last started: resuming takes about" in resumed.stdout
    ends = stored_results(site.directory())
    assert ends.run.status == "finished"
    assert sum(row.trials for row in ends.models) == len(RunOutcome.of(site.directory()).outcomes)
    assert all(row.trials >= was[row.name] for row in ends.models)
    assert "Grades have changed" not in site.run(coin).stdout

    again = regrade(site, site.write(trials=trials), code=ExitCode.REACHED)
    back = stored_results(site.directory())
    assert back.run.status == "finished" and "has these scores." in again.stdout
    assert sum(row.trials for row in back.models) == len(RunOutcome.of(site.directory()).outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["regrade", "label"])
def test_a_run_goes_on_under_its_old_limits_after_grades_under_others(site: Site, by: str) -> None:
    """Before the labels, as if the start with the others had been killed once its settings were stored."""
    few, more = ({"trials": {"min": 4, "max": 60}, "budget": {"trials": cap}} for cap in (120, 400))
    assert site.run(site.write(**few)).exit_code == ExitCode.SPENT
    config = site.write(**more)
    if by == "label":
        store_records(site.directory(), prepare(load_config(config)).header)
    done = regrade(site, config) if by == "regrade" else label(site)
    assert done.exit_code == ExitCode.REACHED, done.output
    assert typed("verify", site.directory()).stdout.endswith(", questions: intact\n")
    assert site.run(site.write(**few)).exit_code == ExitCode.SPENT
    with closing(RunReader.open(site.directory())) as reader:
        report, look = reader.log.newest_report(), reader.log.looks()[-1]
    assert report is not None and report.look == look.number
    assert read_counts(site.directory()).cells.any()


@pytest.mark.slow
def test_a_regrade_goes_by_the_limits_that_the_run_remembers(site: Site) -> None:
    config, cap = site.write(trials={"min": 4, "max": 60}), "budget.trials=120"
    assert site.run(config, "--set", cap).exit_code == ExitCode.SPENT
    done = regrade(site, config)
    assert f"settings of an earlier start still apply ({cap})" in done.stderr
    assert "Within its limits the run asks for no more" in done.stdout
    assert "resuming takes about" in regrade(site, config, "--set", "budget.trials=").stdout


@pytest.mark.slow
def test_a_grader_that_the_run_remembers_does_not_hold_in_place_of_the_file(site: Site) -> None:
    config = site.write(grader="exact", trials={"min": 2, "max": 2})
    assert site.run(config, "--set", "grader=contains").exit_code in ENDED
    assert "add --set grader= to grade by the file" in regrade(site, config, code=ExitCode.CONFIGURATION).stderr
    regrade(site, config, "--set", "grader=", code=ExitCode.REACHED)
    assert json.dumps(stored_header(site.directory()).meaning["grader"]).count("exact")
    assert "settings of an earlier start" not in site.run(config).stderr, "what a regrade undoes is undone"
    regrade(site, config, "--set", "grader=contains", code=ExitCode.REACHED)
    assert "settings of an earlier start still apply (grader=contains)" in site.run(config).stderr


@pytest.mark.slow
def test_what_was_chosen_after_looks_stays_outside_the_promise(site: Site) -> None:
    """Also once all looks are taken anew."""
    settings: dict[str, object] = {"trials": {"min": 2, "max": 9}}
    site.run(site.write(**settings))
    settings["stopping"] = {"confidence": 0.7}
    site.run(site.write(**settings))
    rubric = {"categories": [{"name": "right", "weight": 2, "when": {"is_correct": True}}, {"name": "no", "weight": 0}]}
    regrade(site, site.write(**settings, rubric=rubric), code=ENDED)
    texts = [warning["text"] for warning in site.results()["warnings"] if warning["kind"] == "redecided"]
    assert ["confidence" in text for text in texts] == [True, False] and "rubric" in texts[1], texts


def test_a_capped_run_goes_on_after_a_regrade_whatever_was_judged_again_before(site: Site, fair_url: str) -> None:
    """At its worst, the first round of a regrade exceeds the cap: it has all answers of before. Verdicts that gave no
    grade were charged while they came."""
    models = models_at(fair_url, *MODELS[:2])
    capped = {"models": models, "trials": {"min": 2, "max": 6}, "budget": {"tokens": 1_000_000}}

    def judged_by(url: str) -> Path:
        return site.write(**capped, grader=judge_at(url))

    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(mute=0.4))) as url:
        assert "answers of ada, bob (set aside)" in site.run(judged_by(url)).stdout, "too many answers have no grade"
    assert site.run(judged_by(fair_url)).exit_code in ENDED
    assert len(RunOutcome.of(site.directory()).outcomes) == 96
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(says_right=(0.9, 0.1)))) as url:
        config = judged_by(url)
        done = regrade(site, config, "--beyond-limits", code=ENDED)
        regraded = RunOutcome.of(site.directory())
        assert regraded.looks, done.output
        again = site.run(config)
    assert again.exit_code in ENDED and "does not cover" not in again.output, again.output
    assert RunOutcome.of(site.directory()) == regraded


def test_a_mended_judge_grades_all_that_the_caps_cover_in_one_start(site: Site, fair_url: str) -> None:
    """Of verdicts at their worst, the caps cover few at a time."""
    models = models_at(fair_url, *MODELS[:2])

    def ungraded_after(tokens: int, url: str) -> tuple[int, int, Result]:
        grader = judge_at(url)
        config = site.write(models=models, trials={"min": 4, "max": 4}, budget={"tokens": tokens}, grader=grader)
        ended = site.run(config)
        with closing(LogReader.open(site.directory())) as reader:
            return len([*reader.ungraded()]), reader.spent().tokens, ended

    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(mute=0.4))) as url:
        left, spent, _ = ungraded_after(1_000_000, url)
    worst = 5000
    assert left > 20
    some, before, ended = ungraded_after(spent + worst, fair_url)
    assert 0 < some < left and spent < before <= spent + worst
    output = " ".join(ended.output.split())
    assert f"graded {left - some} of {left} stored answers again; the budget does not cover more verdicts" in output
    assert f"the budget does not cover the verdicts on {some} stored answers without a grade" in output
    raised = re.search(r"to do raise budget.tokens to ([0-9,]+)", output)
    assert raised is not None and "if the grader ran out of time" not in output
    needed = int(raised[1].replace(",", ""))
    assert needed > before + some * worst / 2
    none, after, ended = ungraded_after(before + 4 * worst, fair_url)
    assert none == 0 and before < after < before + 4 * worst < needed, "four at a time at their worst, but all"
    assert "without a grade" not in ended.output
