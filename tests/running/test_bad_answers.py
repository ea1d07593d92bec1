"""Answers that were cut off, and servers that go bad during a run and are asked again: whole runs."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from live_runs import ENDED
from scripted_server import ScriptedPlace, ScriptedServer, scripted_server
from stored_runs import events_in

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import AlarmRaised, AnswersLost, LooksRetaken, PriorTaken, SettingsChanged, events_of_kind
from adaptive_eval.report.reader import RunReader

MODELS = ("ada", "bob", "cyd")
SKILLS = {"ada": 9, "bob": 6, "cyd": 3}
QUESTIONS = 8
LIMIT = 450


def answer(model: str, question: str, seed: int) -> str:
    """Right for a share of the seeds that is the model's skill."""
    if not question.startswith("number"):
        return "OK."  # to see whether the model is there
    right = question.split()[1]
    return f"After {seed} steps, the answer is {right if (7 * seed + int(right)) % 10 < SKILLS[model] else 0}."


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ScriptedPlace]:
    """A folder with a benchmark for one server."""
    usual = {"sampling": {"temperature": 0.6, "max_tokens": LIMIT}, "trials": {"min": 6, "max": 20, "optimize": "cost"}}
    with scripted_server(MODELS, answer) as server:
        yield ScriptedPlace(tmp_path, server, QUESTIONS, **usual)


def test_a_grader_that_finds_nothing_comes_before_cut_answers(place: ScriptedPlace) -> None:
    place.server.finish_reason = lambda model, question, seed: "length" if seed % 5 == 0 else "stop"
    ended = place.run(models=["ada", "bob"], grader={"kind": "json", "field": "answer"}, code=ExitCode.SPENT)
    (trials,) = {row["trials"] for row in place.results["models"]}
    unread = f"he grader found no answer in any of the {2 * trials} responses of ada, bob: fix it before you start over"
    assert f"\nT{unread}.\nStopped by an alarm: " in ended.stdout
    assert "if you change the grader, answer keys or the rubric" in ended.stdout
    assert "ALARM" in ended.stdout and ", 1 blocked" in ended.stdout.partition("ALARM")[0]


@pytest.mark.parametrize(
    ("how", "what", "advice"),
    [
        ("length", "were cut off at a limit", "use a larger sampling.max_tokens, or add a category `when: {trunc"),
        ("context", "were not generated because prompt and max_tokens exceed", "category `when: {context_length: "),
    ],
)
def test_a_dry_run_says_that_its_answers_are_incomplete(place: ScriptedPlace, how: str, what: str, advice: str) -> None:
    place.server.finish_reason = lambda model, question, seed: how if model == "bob" else "stop"
    ended = place.run("--dry-run", code=0)
    assert f"warn  2 of 2 answers of bob {what}" in ended.stdout and advice in ended.stdout
    assert f"of ada {what}" not in ended.stdout


OBJECTIVES: dict[str, dict[str, Any]] = {
    "ranking": {},
    "best": {"stopping": {"delta": 0.01}},
    "threshold": {"value": 0.97},
    "gate on a value": {"kind": "threshold", "value": 0.97, "gate": True},
    "gate": {"kind": "baseline", "baseline": "ada", "gate": True},
}


RIGHT_OR_WRONG = [{"name": "right", "weight": 1, "when": {"is_correct": True}}, {"name": "wrong", "weight": 0}]
LOST = ("bob", "number 20")


def nearly_right(model: str, question: str, seed: int) -> str:
    """Bob is always right, ada is wrong in some of her answers to one question."""
    is_wrong = (model, question, seed % 4) == ("ada", "number 12", 1)
    return "0" if is_wrong else question.removeprefix("number ")


@pytest.fixture
def long(place: ScriptedPlace) -> ScriptedPlace:
    """A benchmark of more questions, of which one is beyond the context of a server."""
    place.server.answer = nearly_right
    place.server.finish_reason = lambda *asked: "context" if asked[:2] == LOST else "stop"
    return ScriptedPlace(place.folder, place.server, 20, sampling={"max_tokens": LIMIT}, trials={"min": 8, "max": 48})


@pytest.mark.parametrize("name", OBJECTIVES)
def test_questions_beyond_the_context_of_a_server_decide_nothing(long: ScriptedPlace, name: str) -> None:
    options = dict(OBJECTIVES[name])
    stopping = options.pop("stopping", {})
    settings = {"models": ["ada", "bob"], "objective": {"kind": name} | options, "stopping": stopping}
    ended = long.run(code=ExitCode.SPENT, **settings)
    decided = {(row["first"], row["second"]) for row in long.results["pairs"] if row["verdict"] in ("resolved", "tied")}
    assert all("bob" not in pair for pair in decided) and not long.results["alarms"]
    assert all(row["outcome"] != "FAIL" for row in long.results["gate"])
    assert "incomplete" in ended.stdout
    assert "(use a smaller sampling.max_tokens or a server with a larger context)" in ended.stdout
    named = {"name": "too long", "weight": 0, "when": {"context_length": True}}
    rubric = {"categories": [named, *RIGHT_OR_WRONG]}
    assert typed("regrade", long.run_dir, "--config", long.config(rubric=rubric, **settings)).exit_code == 0
    long.run(rubric=rubric, code=(ExitCode.REACHED, ExitCode.WORSE), **settings)
    assert all(row["verdict"] == "resolved" for row in long.results["pairs"])


def test_incomplete_answers_of_a_recorded_model_are_repeated_where_they_come_from(long: ScriptedPlace) -> None:
    trials, later = {"min": 8, "max": 8}, long.later()
    long.run(models=["ada", "bob"], trials=trials)
    ended = later.run(models=["ada", {"name": "bob", "recorded": str(long.run_dir)}], trials=trials)
    assert ended.exit_code == ExitCode.SPENT
    (warning,) = (row["text"] for row in later.results["warnings"] if row["kind"] == "unknown")
    assert warning.startswith("of 160 scored answers 8 are incomplete; the score would be 95.00% if ")
    steps = ended.stdout.partition("to do ")[2]
    assert "the answers of bob come from " in steps and ", or ask bob in this run, and start over" in steps
    assert "adaptive-eval regrade" not in steps and "larger context" not in steps


@pytest.mark.parametrize("what", ["cut", "unread"])
def test_a_regrade_after_which_an_alarm_ends_the_run_says_so(place: ScriptedPlace, what: str) -> None:
    place.server.finish_reason = lambda model, question, seed: "length" if model == "bob" and seed % 3 == 0 else "stop"
    rubric = {"categories": [{"name": "cut", "weight": 0, "when": {"truncated": True}}, *RIGHT_OR_WRONG]}
    place.run(rubric=rubric, trials={"min": 6, "max": 20})
    changes: dict[str, Any] = {"rubric": {"categories": RIGHT_OR_WRONG}}
    if what == "unread":
        changes = {"rubric": rubric, "grader": {"kind": "json", "field": "answer"}}
    asked = len(place.server.requests)
    done = typed("regrade", place.run_dir, "--config", place.config(**changes))
    assert "another round" not in done.stdout and "An alarm about answers ends the run" in done.stdout
    shown = typed("monitor", place.run_dir, "--once").stdout
    assert ("Stopped by an alarm: bob: " in shown) == (what == "cut") and "Stopped because of" not in shown
    assert "if you change the grader" in shown and "to continue" not in shown
    assert "another round" not in place.run(code=ExitCode.SPENT, **changes).stdout
    assert len(place.server.requests) == asked


@pytest.mark.parametrize("is_recorded", [False, True])
def test_empty_answers_count_while_a_run_is_no_gate(long: ScriptedPlace, is_recorded: bool) -> None:
    long.server.answer = lambda *asked: "" if asked[:2] == LOST else nearly_right(*asked)
    long.server.finish_reason = lambda *asked: "stop"
    models: list[Any] = ["ada", "bob"]
    if is_recorded:
        long.run(models=["bob"], objective={"kind": "precision", "half_width": 0.2})
        models, long = ["ada", {"name": "bob", "recorded": str(long.run_dir)}], long.later()
    for gate in (False, True, False):
        ended = long.run(models=models, objective=OBJECTIVES["gate"] | {"gate": gate})
        assert [row["verdict"] for row in long.results["pairs"]] == ["blocked" if gate else "resolved"]
        assert [row["outcome"] for row in long.results["gate"]] == ["UNDECIDED"] * gate
        assert (ended.exit_code == ExitCode.SPENT) == gate and not long.results["alarms"]


class Turning:
    """A server that goes bad for one model after a number of answers."""

    def __init__(self, server: ScriptedServer, how: str, after: int = 20) -> None:
        self.server, self.how, self.left = server, how, after
        server.answer, server.finish_reason = self.answer, self.finish_reason

    def answer(self, model: str, question: str, seed: int) -> str:
        if model == "bob":
            self.left -= 1
        return "" if self._is_bad(model) and self.how == "empty" else answer(model, question, seed)

    def finish_reason(self, model: str, question: str, seed: int) -> str:
        return self.how if self._is_bad(model) and self.how != "empty" else "stop"

    def fix(self) -> None:
        self.server.answer, self.server.finish_reason = answer, lambda *asked: "stop"

    def _is_bad(self, model: str) -> bool:
        return model == "bob" and self.left < 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["reasoning", "content_filter"])
def test_a_server_that_goes_bad_ends_the_run_which_goes_on_once_it_is_fixed(place: ScriptedPlace, how: str) -> None:
    """Discarded answers leave a cap on trials to those that are asked again."""
    uncapped, good = place.later("uncapped"), place.later("good")
    uncapped.run(concurrency=1)
    enough: dict[str, Any] = {"concurrency": 1, "budget": {"trials": uncapped.results["cost"]["trials"]}}
    assert good.run(**enough).exit_code == ExitCode.REACHED and not good.alarms()
    turning = Turning(place.server, how)
    ended = place.run(**enough)
    assert ended.exit_code == ExitCode.SPENT and "Stopped by an alarm: a server has changed; bob: " in ended.stdout
    assert "better than bob" not in ended.stdout and "worse than" not in ended.stdout
    (alarm,) = place.results["alarms"]
    assert alarm["model"] == "bob" and 9 <= alarm["since"] <= 21
    assert "--ask-again" in ended.stdout
    asked = len(place.server.requests)
    assert place.run(**enough).exit_code == ExitCode.SPENT and len(place.server.requests) == asked  # nothing bought
    turning.fix()
    went_on = place.run("--ask-again", code=ExitCode.REACHED, **enough)
    assert "alarm:" not in went_on.stdout and not place.results["alarms"]
    for key in ("pairs", "looks"):  # as if the server had never been bad
        assert place.results[key] == good.results[key]
    with closing(RunReader.open(place.run_dir)) as reader:
        (lost,) = events_of_kind(reader.events(), AnswersLost)
        assert lost.discarded and lost.answers == alarm["of"]
        assert len(events_of_kind(reader.events(), AlarmRaised)) == 1
        spent, stored = reader.log.spent().tokens, sum(row.tokens for row in reader.sums())
        assert spent == stored + lost.tokens
        assert len(place.server.requests) >= asked + lost.answers
    stored_trials = place.results["cost"]["trials"]
    assert stored_trials == good.results["cost"]["trials"]
    assert f"cost      {stored_trials:,} trials (" in went_on.stdout, "discarded answers are no trials"
    assert f"), {lost.answers} discarded answers" in went_on.stdout
    (warning,) = [row["text"] for row in place.results["warnings"] if row["kind"] == "discarded"]
    assert " requested again. budget.trials does not count them; other limits count their " in warning
    assert typed("verify", place.run_dir).exit_code == 0
    assert "has none of these" in place.run("--ask-again", code=ExitCode.CONFIGURATION, **enough).stderr


@pytest.mark.slow
def test_an_import_with_an_alarm_goes_on_like_the_run(place: ScriptedPlace) -> None:
    turning = Turning(place.server, "content_filter")
    assert place.run(concurrency=1).exit_code == ExitCode.SPENT
    typed("export", place.run_dir, "--format", "jsonl", code=0)
    copy, config = place.later("imported"), place.config(concurrency=1)
    typed("import", place.run_dir / "trials.jsonl", "--to", copy.run_dir, "--config", config, code=0)
    assert copy.results["alarms"] == place.results["alarms"] != []
    assert "/imported' --ask-again\n" in copy.report("summary").partition("to do")[2]
    turning.fix()
    assert copy.run("--ask-again", concurrency=1).exit_code == ExitCode.REACHED and not copy.results["alarms"]


@pytest.mark.parametrize(
    ("how", "advice"), [("empty", "let it go on with --ask-again"), ("length", "here: name another")]
)
def test_a_run_that_an_alarm_ended_is_no_prior_of_its_model(place: ScriptedPlace, how: str, advice: str) -> None:
    turning = Turning(place.server, how, after=20 if how == "empty" else 0)
    assert place.run(concurrency=1).exit_code == ExitCode.SPENT
    if how == "empty":  # a server that stays bad raises the alarm again, without a loop
        asked = len(place.server.requests)
        assert "Stopped by an alarm" in place.run("--ask-again", concurrency=1, code=ExitCode.SPENT).stdout
        assert asked < len(place.server.requests) <= 2 * asked and len(place.alarms()) == 2
    turning.fix()
    alarmed, later, asked = str(place.run_dir), place.later(), len(place.server.requests)
    refused = later.run(prior={"run": alarmed}, concurrency=1)
    assert refused.exit_code == ExitCode.CONFIGURATION and len(place.server.requests) == asked
    assert f"prior: {alarmed} has an alarm about bob: " in refused.stderr and advice in refused.stderr
    recorded = {"name": "bob", "recorded": alarmed}
    assert later.run(models=["ada", recorded]).stderr == refused.stderr.replace("prior", "recorded models bob")
    assert not later.run_dir.exists()
    later.run("--dry-run", prior={"run": alarmed}, models=("ada", "cyd"), code=0)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "every"), [("length", 12), ("context", 24)])
def test_incomplete_answers_of_a_prior_stay_unsure(place: ScriptedPlace, how: str, every: int) -> None:
    place.server.finish_reason = lambda model, question, seed: how if model == "bob" and seed % every == 0 else "stop"
    assert place.run(concurrency=1).exit_code in ENDED
    with closing(RunReader.open(place.run_dir)) as reader:
        rows = [row for row in reader.graded_trials() if row.model == "bob" and row.trial.number < 6]
    cut = [(row.question, row.trial.number) for row in rows if row.trial.kinds and not row.trial.category]
    assert cut
    place.server.finish_reason = lambda *asked: "stop"
    later = place.later()
    for _ in range(2):  # and a later start knows it, too
        assert later.run(concurrency=1, prior={"run": str(place.run_dir)}).exit_code in ENDED
        (taken,) = events_in(later.run_dir, PriorTaken)
        assert taken.kinds is not None and taken.kinds.keys() == {"bob"}
        kinds, grades = taken.kinds["bob"], taken.outcomes["bob"]
        wrong = [(key, at) for key in kinds for at, kind in enumerate(kinds[key]) if kind and not grades[key][at]]
        assert sorted(wrong) == sorted(cut)
        rows = {row["name"]: row for row in later.results["models"]}
        assert not any(row["unsure"] for row in rows.values()) and not later.results["alarms"], "none of this run"
        assert {name for name, row in rows.items() if row["lowest"] < row["highest"]} == {"bob"}


def looks(place: ScriptedPlace) -> list[tuple[int, Any]]:
    """The stored looks, each with the configuration under which it was taken."""
    with closing(RunReader.open(place.run_dir)) as reader:
        return [(look.configuration, json.loads(json.dumps(look.body))) for look in reader.log.looks()]


MARGIN: list[dict[str, Any]] = [{"stopping": {"delta": 0.02}}]
MARGIN_AND_MODELS: list[dict[str, Any]] = [*MARGIN, {"models": ("ada", "cyd")}, {}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "changes"),
    [(20, MARGIN_AND_MODELS), (62, MARGIN_AND_MODELS), (62, MARGIN)],
    ids=["before the first look", "after looks", "after looks, as the margin stays changed"],
)
def test_later_starts_replay_the_looks_of_a_model_that_was_asked_again(
    place: ScriptedPlace, monkeypatch: pytest.MonkeyPatch, after: int, changes: list[dict[str, Any]]
) -> None:
    monkeypatch.setitem(SKILLS, "ada", 7)
    monkeypatch.setitem(SKILLS, "cyd", 5)
    turning = Turning(place.server, "empty", after=after)
    alarmed = place.run(concurrency=1, code=ExitCode.SPENT)
    assert "a server has changed; bob" in alarmed.stdout, alarmed.stdout
    told = looks(place)
    for change in changes:
        place.run(concurrency=1, **change)
        assert looks(place)[: len(told)] == told
        told = looks(place)
    settled = [look for look in told if look[0] < len(changes)]  # of earlier settings
    turning.fix()
    settings = changes[-1]
    went_on = place.run("--ask-again", concurrency=1, code=ENDED, **settings)
    decided, pairs, asked = looks(place), place.results["pairs"], len(place.server.requests)
    assert decided[: len(settled)] == settled and not place.results["alarms"]
    looks_by_then = [event.looks for event in events_in(place.run_dir, SettingsChanged)]
    for _ in range(2):
        place.run(concurrency=1, code=went_on.exit_code, **settings)
        assert looks(place) == decided and place.results["pairs"] == pairs
    assert len(place.server.requests) == asked and not events_in(place.run_dir, LooksRetaken)
    assert looks_by_then == sorted(looks_by_then) and looks_by_then[0] > 0


def test_labels_of_discarded_answers_count_no_more(place: ScriptedPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODELS:  # so that nothing is decided before the places of the discarded answers are asked again
        monkeypatch.setitem(SKILLS, name, 6)
    turning = Turning(place.server, "empty", after=20)
    place.run(concurrency=1)
    with closing(RunReader.open(place.run_dir)) as reader:
        bobs = [record for record in reader.trials() if record.model == "bob"]
    labels = place.run_dir.parent / "bob.csv"
    rows = (f"bob,{record.question},{record.trial},{'correct' if record.category else 'wrong'}" for record in bobs)
    labels.write_text("\n".join(["model,question,trial,label", *rows]))
    label = ["label", str(place.run_dir)]
    assert typed(*label, "--from", labels).exit_code == ExitCode.REACHED
    turning.fix()
    for _ in range(2):  # the second start reads the labels anew
        place.run("--ask-again", concurrency=1)
    shown = typed(*label, "--show").stdout
    (model,) = (row for row in place.results["labelled"]["models"] if row["name"] == "bob")
    (right, wrong) = model["confusion"]
    assert right[1] == wrong[0] == 0, shown
    dropped = sum(not record.answer.text for record in bobs)
    assert dropped > 20 and model["labels"] <= len(bobs) - dropped
    assert f"Not counted: {len(bobs) - model['labels']} labels of answers that are not, or no longer," in shown
