"""Answers that cannot be right end a run before it costs much: whole runs by the command line over loopback."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import typed
from fakes import uniform
from scripted_server import ScriptedPlace, scripted_server

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.machine.usage import AnswerFault

MODELS = ("ada", "bob")
QUESTIONS = 6


def honest(model: str, question: str, seed: int) -> str:
    """Right more often for one model than for the other, in words of its own each time."""
    right = question.split()[1]
    skill = {"ada": 0.9, "bob": 0.4}[model]
    return f"After {seed} steps, the answer is {right if uniform(model, question, seed) < skill else 0}."


def wrong_by_bob(model: str, question: str, seed: int) -> str:
    return honest(model, question, seed) if model == "ada" else f"It is {seed + 1000}."


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ScriptedPlace]:
    """A folder with a benchmark for one server."""
    usual = {"sampling": {"temperature": 0.6, "max_tokens": 1000}, "trials": {"min": 4, "max": 8, "optimize": "cost"}}
    with scripted_server(MODELS, honest) as server:
        yield ScriptedPlace(tmp_path, server, QUESTIONS, **usual)


GATE = {"kind": "baseline", "baseline": "ada", "gate": True}
NEVER = {"kind": "json", "field": "answer"}
"""A grader that finds nothing in these answers."""


@pytest.mark.slow
def test_a_run_ends_after_its_first_look_if_nothing_can_be_read_of_any_model(place: ScriptedPlace) -> None:
    ended = place.run(grader=NEVER, concurrency=1, stopping={"delta": 0.9}, code=ExitCode.SPENT)
    assert "no model's answers are usable" in ended.stderr
    (text,) = [line for line in ended.stderr.splitlines() if "all 24 answers" in line]
    assert text.startswith(f"  {', '.join(MODELS)}: all 24 answers hold no answer that the grader can parse")
    assert "to question q0: found nothing, key '10'" in ended.stderr
    assert "ALARM ada: all 24 answers hold no answer" in ended.stdout
    looks = re.findall(r"^look \d+: .*", ended.stdout, re.MULTILINE)
    assert looks and all(", 1 blocked" in look for look in looks), looks
    assert {(alarm.model, alarm.fault) for alarm in place.alarms()} == {(name, "nothing_extracted") for name in MODELS}
    asked = len(place.server.requests)
    assert asked <= 2 * QUESTIONS * 8
    # it does not go on by itself, asks nothing, and says the alarm once in its store
    assert place.run(grader=NEVER, concurrency=1, stopping={"delta": 0.9}).exit_code == ExitCode.SPENT
    assert len(place.server.requests) == asked and len(place.alarms()) == 2
    # no ranking, and no result, is made of such answers; the same command would end as this one has
    summary = place.report("summary")
    assert "Stopped by an alarm: no model's answers" in summary and "by an error" not in summary
    assert "start over:\n" in summary and "/run-2'\n" in summary and "same command" not in summary
    assert not re.search("equal to|better than|worse than|[1-9] of \\d comparisons", summary + place.report("md"))


def test_one_model_alone_is_an_alarm_and_stops_only_if_asked_to(place: ScriptedPlace) -> None:
    place.server.answer = wrong_by_bob
    assert "usable" not in place.run().stderr
    assert (AnswerFault.WRONG, "bob") in place.warnings() and ("alarm", None) not in place.warnings()
    assert [(alarm.model, alarm.fault) for alarm in place.alarms()] == [("bob", AnswerFault.WRONG)]
    again = place.run("--set", "stopping.on_alarm=any")
    assert again.exit_code == ExitCode.SPENT and "the answers of a model are not usable" in again.stderr


@pytest.mark.parametrize(("tier", "alarmed"), [("good", set()), ("bad", set(MODELS))])
def test_the_lowest_weight_is_wrong_whatever_its_place(place: ScriptedPlace, tier: str, alarmed: set[str]) -> None:
    (place.folder / "tiers.py").write_text(f"def grade(text, question):\n    return {{'tier': '{tier}'}}\n")
    grader = {"kind": "python", "function": "tiers:grade", "key_is_answer": False, "signals": ["tier"]}
    good = {"name": "good", "weight": 1, "when": {"tier": "good"}}
    place.run(grader=grader, rubric={"categories": [good, {"name": "rest", "weight": 0}]})
    assert {alarm.model for alarm in place.alarms() if alarm.fault == AnswerFault.WRONG} == alarmed


@pytest.mark.parametrize(("kind", "share_of_them"), [("empty", 0.8), ("context_length", 1.0)])
def test_mostly_empty_answers_end_a_run_without_verdict(place: ScriptedPlace, kind: str, share_of_them: float) -> None:
    def silent(model: str, question: str, seed: int) -> bool:
        return model == "bob" and uniform(question, seed) < share_of_them

    if kind == "empty":
        place.server.answer = lambda *request: "" if silent(*request) else honest(*request)
    else:
        place.server.finish_reason = lambda *request: "context" if silent(*request) else "stop"
    ended = place.run(code=ExitCode.SPENT)
    (alarm,) = place.results["alarms"]
    assert (alarm["model"], alarm["kind"], alarm["since"]) == ("bob", kind, None) and alarm["of"] == 24
    assert place.results["run"]["reason"] == "alarm"
    for text in (ended.stdout, place.report("md")):
        assert f"bob: {alarm['text']}" in text.replace("\\", "")
        assert not re.search("better than|worse than|cut off|trials.max", text)
    assert "start over" in ended.stdout and f" --run-dir {place.run_dir}-2\n" in ended.stdout
    copied = shutil.copytree(place.run_dir, place.folder / "copied here")
    shown = typed("monitor", copied, "--once").stdout
    assert f" --run-dir '{copied}-2'\n" in shown, "the copy is what its commands are about"
    asked = len(place.server.requests)
    assert place.run().exit_code == ExitCode.SPENT and len(place.server.requests) == asked  # it buys nothing more
    where = ["--set", f"store={place.run_dir.parent}", "--set", f"name={place.run_dir.name}"]
    planned = typed("plan", place.config(), "--simulations", "10", *where).stdout
    assert f"bob: {alarm['text']}" in planned and "Next: adaptive-eval report" in planned
    never = [*where, "--set", "stopping.on_alarm=never"]
    planned = typed("plan", place.config(), "--simulations", "10", *never).stdout
    assert "the forecast counts all the same" in planned and "requests nothing more" not in planned
    # whoever reads that file alone gets the answer of the exit code, whatever the outcomes of the models are
    gate = place.later("gate")
    assert gate.run(objective=GATE).exit_code == ExitCode.SPENT
    cases = ElementTree.fromstring(gate.report("junit")).iter("testcase")
    assert {case.attrib["name"]: case[0].tag for case in cases} == {"bob against ada": "error", "no alarm": "error"}


@pytest.mark.parametrize("signal", ["empty", "truncated"])
def test_a_rubric_that_names_such_answers_lets_them_count(place: ScriptedPlace, signal: str) -> None:
    text = "" if signal == "empty" else "Well"
    place.server.answer = lambda *asked: text if asked[0] == "bob" else honest(*asked)
    place.server.finish_reason = lambda *asked: "length" if place.server.answer(*asked) == "Well" else "stop"
    assert place.run().exit_code == ExitCode.SPENT
    right = {"name": "right", "weight": 1, "when": {"is_correct": True}}
    named = {"name": "named", "weight": 0, "when": {signal: True}}
    rubric = {"categories": [right, named, {"name": "wrong", "weight": 0}]}
    assert typed("regrade", place.run_dir, "--config", place.config(rubric=rubric)).exit_code == 0
    ended = place.run(rubric=rubric)
    assert ended.exit_code == ExitCode.REACHED, ended.stdout + ended.stderr
    assert "better than bob" in ended.stdout and not place.results["alarms"]


@pytest.mark.parametrize("gated", [True, False])
def test_a_run_that_an_alarm_ends_decides_nothing(place: ScriptedPlace, gated: bool) -> None:
    """Each text says what the exit code says, and so do the results."""
    place.server.answer = wrong_by_bob
    objective = GATE if gated else {"kind": "ranking"}
    ended = place.run(objective=objective, stopping={"on_alarm": "any"})
    assert ended.exit_code == ExitCode.SPENT and "the answers of a model are not usable" in ended.stderr
    assert place.results["run"]["status"] == "stopped" and place.results["run"]["reason"] is None
    assert [pair["verdict"] for pair in place.results["pairs"]] == ["blocked"]
    assert [row["outcome"] for row in place.results["gate"]] == ["UNDECIDED"] * gated
    summary = place.report("summary")
    assert "all answers of bob are empty, identical, unreadable or wrong" in summary and "every model" not in summary
    assert not re.search("better than|worse than|FAIL:|[1-9] of \\d comparisons", summary)
    shown = typed("monitor", place.run_dir, "--once")
    assert shown.exit_code == ExitCode.SPENT and "set aside" not in shown.stdout
    assert "needs usable answers, since an alarm ended the run" in shown.stdout
    # the user may go on all the same, and then it is decided
    place.run("--set", "stopping.on_alarm=never", objective=objective)
    assert [pair["verdict"] for pair in place.results["pairs"]] == ["resolved"]


def test_an_alarm_about_the_only_model_that_is_asked_decides_no_gate(place: ScriptedPlace) -> None:
    """Against a value, and beside a recorded baseline."""
    alone = place.later("alone")
    ended = alone.run(models=["bob"], grader=NEVER, objective={"kind": "threshold", "value": 0.9, "gate": True})
    assert ended.exit_code == ExitCode.SPENT and "look 1: 24 trials, 1 UNDECIDED" in ended.stdout
    assert [row["outcome"] for row in alone.results["gate"]] == ["UNDECIDED"]
    place.run(models=["ada"], objective={"kind": "precision", "half_width": 0.3})
    place.server.answer = lambda *request: "I cannot say."
    build = place.later()
    build.run(models=[{"name": "ada", "recorded": str(place.run_dir)}, "bob"], objective=GATE, code=ExitCode.SPENT)
    assert [row["outcome"] for row in build.results["gate"]] == ["UNDECIDED"]
    cases = ElementTree.fromstring(build.report("junit"))
    assert (cases.attrib["failures"], cases.attrib["errors"]) == ("0", "1")
    refused = typed("report", place.run_dir, "--format", "junit")
    assert refused.exit_code == ExitCode.CONFIGURATION and "set objective.gate" in refused.output


def taking_from(place: ScriptedPlace) -> list[tuple[ScriptedPlace, dict[str, Any]]]:
    """Runs that take answers of an earlier one: as a prior, and as those of a recorded model."""
    run = str(place.run_dir)
    recorded = ["ada", {"name": "bob", "recorded": run}]
    return [(place.later("prior"), {"prior": {"run": run}}), (place.later("recorded"), {"models": recorded})]


def test_servers_that_ignore_the_seed_are_reported_everywhere(place: ScriptedPlace) -> None:
    """The comparisons of one such model are void; if all are, the run would be wasted."""
    words = " because the number is what it is and was" * 50

    def says(model: str, question: str, seed: int) -> str:
        return honest(model, question, 7 if model in stuck else seed) + words

    place.server.answer, stuck = says, {"bob"}
    ended = place.run()
    assert "usable" not in ended.stderr and ended.exit_code == ExitCode.SPENT
    assert [(alarm.model, alarm.fault) for alarm in place.alarms()] == [("bob", AnswerFault.REPEATED)]
    assert ("repeats", "bob") in place.warnings() and ("repeats", "ada") not in place.warnings()
    assert "ALARM bob: the answers of 12 of 12 pairs of trials agree word for word" in ended.stdout
    assert "pairs of trials agree word for word" in place.report("md")
    # the comparison is void, in every display
    assert "look 1: 48 trials, 1 blocked" in ended.stdout
    shown = typed("monitor", place.run_dir, "--once", "--display", "json").stdout
    looks = [row for row in map(json.loads, shown.splitlines()) if row["record"] == "look"]
    assert looks[-1]["verdicts"]["blocked"] == 1 and not looks[-1]["verdicts"]["resolved"]
    assert [pair["verdict"] for pair in place.results["pairs"]] == ["blocked"]
    assert {row["name"]: row["tier"] for row in place.results["models"]} == {"ada": 1, "bob": None}
    for text in (ended.stdout, place.report("summary"), place.report("md")):
        assert "come back word for word" in text and "better than" not in text
    compared = typed("compare", place.run_dir, place.run_dir)
    assert "Alarm: answers of bob come back word for word" in compared.stdout
    assert "1 model not compared, since answers come back word for word in one of the runs: bob" in compared.stdout
    assert "\nada " in compared.stdout and "\nbob " not in compared.stdout, "no scores of it"
    for form, warned in (["csv"], True), (["csv", "--text", "--force"], False), (["npz"], True), (["jsonl"], False):
        exported = typed("export", place.run_dir, "--format", *form)
        assert exported.exit_code == 0 and ("answers of bob come back word for word" in exported.stderr) == warned
    here = ["--set", f"store={place.folder}", "--set", f"name={place.run_dir.name}"]
    for whose, options in ("run", here), (f"pilot {place.run_dir}", ["--pilot", str(place.run_dir)]):
        planned = typed("plan", place.config(), "--simulations", "10", *options).stdout
        assert f"the {whose} has an alarm about answers that the forecast counts all the same. bob: " in planned
    for later, settings in taking_from(place):
        refused = later.run(**settings)
        assert refused.exit_code == ExitCode.CONFIGURATION and not later.run_dir.exists()
        assert f"{place.run_dir} has an alarm about bob: the answers of 12 of 12 pairs" in refused.stderr
    fine = ("--set", "stopping.on_alarm=never")
    assert place.run(*fine).exit_code == ExitCode.REACHED
    caveat = "its answers count here as in the run run, which warns: the answers"
    for later, settings in taking_from(place):
        assert later.run(*fine, **settings).exit_code == ExitCode.REACHED, "as the refusal says"
        assert later.run(*fine, **settings).exit_code == ExitCode.REACHED
        assert [row["model"] for row in later.results["warnings"] if row["text"].startswith(caveat)] == ["bob"]
        shown = typed("monitor", later.run_dir, "--once").stdout
        assert all(caveat in " ".join(text.split()) for text in (shown, later.report("summary"), later.report("md")))
    stuck = set(MODELS)
    all_of_them = place.later("all").run()
    assert all_of_them.exit_code == ExitCode.SPENT and "ignores the seed or serves a cache" in all_of_them.stderr


def test_runs_that_take_answers_which_may_be_copies_warn_of_it(place: ScriptedPlace) -> None:
    place.server.answer = lambda model, question, seed: honest(model, question, 7 if model == "bob" else seed)
    place.run()
    assert ("repeats_unclear", "bob") in place.warnings()
    for later, settings in taking_from(place):
        later.run(**settings)
        (text,) = [row["text"] for row in later.results["warnings"] if row["kind"] == "alarm_elsewhere"]
        assert text.startswith("its answers count here as in the run run, which warns: the answers of all 12 pairs")


@pytest.mark.slow
def test_a_cache_that_starts_in_the_middle_voids_the_verdicts_for_good(place: ScriptedPlace) -> None:
    """A few words, right in half of the cases; from the ninth request for a question on always the same. The server is
    mended later, and further answers do not make the copies samples; new ones are."""
    asked_for, lock = Counter[tuple[str, str]](), Lock()

    def cached(model: str, question: str, seed: int) -> str:
        with lock:
            asked_for[model, question] += 1
            fresh = asked_for[model, question] <= 8 or model != "bob" or is_mended
        number = int(question.split()[1])
        is_right = uniform(model, question, seed) < (0.62 if model == "ada" else 0.5) if fresh else number % 3 > 0
        return f"It is {number + (not is_right)}."

    place.server.answer, is_mended = cached, False
    ended = place.run(trials={"min": 24, "max": 24}, concurrency=1)  # in the order of the trials
    assert [(alarm.model, alarm.fault) for alarm in place.alarms()] == [("bob", AnswerFault.REPEATED)]
    assert re.search("from about trial (6|7|8|9|10) on", ended.stdout) and ended.exit_code == ExitCode.SPENT
    is_mended, asked = True, len(place.server.requests)
    longer = place.run(trials={"min": 24, "max": 90}, stopping={"delta": 0.02}, concurrency=1)
    assert len(place.server.requests) == asked and longer.exit_code == ExitCode.SPENT, "nothing could be decided"
    assert ("repeats", "bob") in place.warnings()
    for text in (longer.stdout, place.report("md"), place.report("summary")):
        assert not re.search("better than|worse than|[1-9] of \\d comparisons", text)
    assert {pair["verdict"] for pair in place.results["pairs"]} == {"blocked"}
