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
def server() -> Iterator[ScriptedServer]:
    with scripted_server(MODELS, answer) as model_server:
        yield model_server


def place_of(folder: Path, server: ScriptedServer) -> ScriptedPlace:
    """A folder with a benchmark for one server."""
    sampling = {"temperature": 0.6, "max_tokens": LIMIT}
    return ScriptedPlace(folder, server, QUESTIONS, sampling=sampling, trials={"min": 6, "max": 20, "optimize": "cost"})


@pytest.fixture
def place(tmp_path: Path, server: ScriptedServer) -> ScriptedPlace:
    return place_of(tmp_path, server)


def test_a_grader_that_finds_nothing_comes_before_cut_answers(place: ScriptedPlace, server: ScriptedServer) -> None:
    server.finish_reason = lambda model, question, seed: "length" if seed % 5 == 0 else "stop"
    ended = place.run(models=["ada", "bob"], grader={"kind": "json", "field": "answer"})
    assert ended.exit_code == ExitCode.SPENT
    (trials,) = {row["trials"] for row in place.results["models"]}
    unread = f"he grader found no answer in any of the {2 * trials} responses of ada, bob: fix it before you start over"
    assert f"\nT{unread}.\nStopped by an alarm: " in ended.stdout
    assert "if you change the grader, answer keys or the rubric" in ended.stdout
    assert "ALARM" in ended.stdout and ", 1 blocked" in ended.stdout.partition("ALARM")[0]


@pytest.mark.parametrize(
    ("how", "what", "advice"),
    [
        (
            "length",
            "were cut off at a limit",
            "use a larger sampling.max_tokens, or add a category `when: {truncated: ",
        ),
        ("context", "were not generated because prompt and max_tokens exceed", "category `when: {context_length: "),
    ],
)
def test_a_dry_run_says_that_its_answers_are_incomplete(
    place: ScriptedPlace, server: ScriptedServer, how: str, what: str, advice: str
) -> None:
    server.finish_reason = lambda model, question, seed: how if model == "bob" else "stop"
    ended = place.run("--dry-run")
    assert ended.exit_code == 0
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


@pytest.mark.parametrize("name", OBJECTIVES)
def test_questions_beyond_the_context_of_a_server_decide_nothing(
    place: ScriptedPlace, server: ScriptedServer, name: str
) -> None:
    long = ScriptedPlace(place.folder, server, 20, sampling={"max_tokens": LIMIT}, trials={"min": 8, "max": 48})
    options = dict(OBJECTIVES[name])
    stopping = options.pop("stopping", {})
    settings = {"models": ["ada", "bob"], "objective": {"kind": name} | options, "stopping": stopping}
    server.answer = nearly_right
    server.finish_reason = lambda model, question, seed: "context" if (model, question) == LOST else "stop"
    ended = long.run(**settings)
    assert ended.exit_code == ExitCode.SPENT, ended.stdout
    decided = {(row["first"], row["second"]) for row in long.results["pairs"] if row["verdict"] in ("resolved", "tied")}
    assert all("bob" not in pair for pair in decided) and not long.results["alarms"]
    assert all(row["outcome"] != "FAIL" for row in long.results["gate"])
    assert "incomplete" in ended.stdout
    assert "(use a smaller sampling.max_tokens or a server with a larger context)" in ended.stdout
    named = {"name": "too long", "weight": 0, "when": {"context_length": True}}
    rubric = {"categories": [named, *RIGHT_OR_WRONG]}
    config = long.config(rubric=rubric, **settings)
    assert typed("regrade", long.run_dir, "--config", config).exit_code == 0
    ended = long.run(rubric=rubric, **settings)
    assert ended.exit_code in (ExitCode.REACHED, ExitCode.WORSE), ended.stdout
    assert all(row["verdict"] == "resolved" for row in long.results["pairs"])


def test_incomplete_answers_of_a_recorded_model_are_warned_of_and_repeated_where_they_come_from(
    place: ScriptedPlace, server: ScriptedServer, tmp_path: Path
) -> None:
    long = ScriptedPlace(place.folder, server, 20, sampling={"max_tokens": LIMIT}, trials={"min": 8, "max": 8})
    server.answer = nearly_right
    server.finish_reason = lambda model, question, seed: "context" if (model, question) == LOST else "stop"
    long.run(models=["ada", "bob"])
    earlier, long.run_dir = long.run_dir, tmp_path / "later"
    ended = long.run(models=["ada", {"name": "bob", "recorded": str(earlier)}])
    assert ended.exit_code == ExitCode.SPENT
    (warning,) = (row["text"] for row in long.results["warnings"] if row["kind"] == "unknown")
    assert warning.startswith("of 160 scored answers 8 are incomplete; the score would be 95.00% if ")
    steps = ended.stdout.partition("to do ")[2]
    assert "the answers of bob come from " in steps and ", or ask bob in this run, and start over" in steps
    assert "adaptive-eval regrade" not in steps and "larger context" not in steps


@pytest.mark.parametrize("what", ["cut", "unread"])
def test_a_regrade_after_which_an_alarm_ends_the_run_says_so(
    place: ScriptedPlace, server: ScriptedServer, what: str
) -> None:
    server.finish_reason = lambda model, question, seed: "length" if model == "bob" and seed % 3 == 0 else "stop"
    named = {"name": "cut", "weight": 0, "when": {"truncated": True}}
    place.run(rubric={"categories": [named, *RIGHT_OR_WRONG]}, trials={"min": 6, "max": 20})
    changes: dict[str, Any] = {"rubric": {"categories": RIGHT_OR_WRONG}}
    if what == "unread":
        changes = {"rubric": {"categories": [named, *RIGHT_OR_WRONG]}, "grader": {"kind": "json", "field": "answer"}}
    asked, config = len(server.requests), place.config(**changes)
    done = typed("regrade", place.run_dir, "--config", config)
    assert "another round" not in done.stdout and "An alarm about answers ends the run" in done.stdout
    shown = typed("monitor", place.run_dir, "--once").stdout
    assert ("Stopped by an alarm: bob: " in shown) == (what == "cut") and "Stopped because of" not in shown
    assert "if you change the grader" in shown and "to continue" not in shown
    ended = place.run(**changes)
    assert ended.exit_code == ExitCode.SPENT and "another round" not in ended.stdout
    assert len(server.requests) == asked


@pytest.mark.parametrize(("name", "verdict"), [("ranking", "resolved"), ("gate", "blocked")])
def test_empty_answers_count_except_in_a_gate(
    place: ScriptedPlace, server: ScriptedServer, name: str, verdict: str
) -> None:
    many = ScriptedPlace(place.folder, server, 20, sampling={"max_tokens": LIMIT}, trials={"min": 8, "max": 48})
    server.answer = lambda *asked: "" if asked[:2] == LOST else nearly_right(*asked)
    ended = many.run(models=["ada", "bob"], objective={"kind": name} | OBJECTIVES[name])
    assert [row["verdict"] for row in many.results["pairs"]] == [verdict] and not many.results["alarms"]
    assert [row["outcome"] for row in many.results["gate"]] == ["UNDECIDED"] * (name == "gate")
    assert (ended.exit_code == ExitCode.SPENT) == (name == "gate")


@pytest.mark.parametrize("is_recorded", [False, True])
def test_empty_answers_count_no_more_once_a_run_becomes_a_gate(
    place: ScriptedPlace, server: ScriptedServer, tmp_path: Path, is_recorded: bool
) -> None:
    many = ScriptedPlace(place.folder, server, 20, sampling={"max_tokens": LIMIT}, trials={"min": 8, "max": 48})
    server.answer = lambda *asked: "" if asked[:2] == LOST else nearly_right(*asked)
    models: list[Any] = ["ada", "bob"]
    if is_recorded:
        many.run(models=[LOST[0]], objective={"kind": "precision", "half_width": 0.2})
        models = [{"name": name, "recorded": str(many.run_dir)} if name == LOST[0] else name for name in models]
        many.run_dir = tmp_path / "later"
    seen = []
    for gate in (False, True, False):
        many.run(models=models, objective=OBJECTIVES["gate"] | {"gate": gate})
        seen += [row["verdict"] for row in many.results["pairs"]]
    assert seen == ["resolved", "blocked", "resolved"]


def test_questions_beyond_the_context_end_the_run_if_there_are_many(
    place: ScriptedPlace, server: ScriptedServer
) -> None:
    server.finish_reason = lambda model, question, seed: (
        "context" if model == "bob" and question in ("number 10", "number 11") else "stop"
    )
    ended = place.run()
    assert ended.exit_code == ExitCode.SPENT
    (alarm,) = place.results["alarms"]
    assert (alarm["model"], alarm["kind"], alarm["answers"], alarm["of"]) == ("bob", "context_length", 12, 48)
    assert "bob: 12 of its 48 answers (25%) were not generated because prompt and max_tokens exceed" in ended.stdout


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
def test_a_server_that_goes_bad_ends_the_run_which_goes_on_once_it_is_fixed(
    place: ScriptedPlace, server: ScriptedServer, tmp_path: Path, how: str
) -> None:
    (tmp_path / "good").mkdir()
    place_of_good_run = place_of(tmp_path / "good", server)
    assert place_of_good_run.run(concurrency=1).exit_code in ENDED
    turning = Turning(server, how)
    ended = place.run(concurrency=1)
    assert ended.exit_code == ExitCode.SPENT and "Stopped by an alarm: a server has changed; bob: " in ended.stdout
    assert "better than bob" not in ended.stdout and "worse than" not in ended.stdout
    (alarm,) = place.results["alarms"]
    assert alarm["model"] == "bob" and 9 <= alarm["since"] <= 21
    assert "--ask-again" in ended.stdout
    asked = len(server.requests)
    assert place.run(concurrency=1).exit_code == ExitCode.SPENT and len(server.requests) == asked  # nothing bought
    turning.fix()
    went_on = place.run("--ask-again", concurrency=1)
    assert went_on.exit_code in ENDED, went_on.stderr
    assert "alarm:" not in went_on.stdout and not place.results["alarms"]
    for key in ("pairs", "looks"):  # as if the server had never been bad
        assert place.results[key] == place_of_good_run.results[key]
    with closing(RunReader.open(place.run_dir)) as reader:
        (lost,) = events_of_kind(reader.events(), AnswersLost)
        assert lost.discarded and lost.answers == alarm["of"]
        assert len(events_of_kind(reader.events(), AlarmRaised)) == 1
        spent, stored = reader.log.spent().tokens, sum(row.tokens for row in reader.sums())
        assert spent == stored + lost.tokens
        assert len(server.requests) >= asked + lost.answers
    stored_trials = place.results["cost"]["trials"]
    assert f"cost      {stored_trials:,} trials (" in went_on.stdout, "discarded answers are no trials"
    assert f"), {lost.answers} discarded answers" in went_on.stdout
    (warning,) = [row["text"] for row in place.results["warnings"] if row["kind"] == "discarded"]
    assert " requested again. budget.trials does not count them; other limits count their " in warning
    assert typed("verify", place.run_dir).exit_code == 0
    refused = place.run("--ask-again", concurrency=1)
    assert refused.exit_code == ExitCode.CONFIGURATION and "has none of these" in refused.stderr


@pytest.mark.slow
def test_discarded_answers_leave_a_cap_on_trials_to_those_that_are_asked_again(
    place: ScriptedPlace, server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "good").mkdir()
    good = place_of(tmp_path / "good", server)
    assert good.run(concurrency=1).exit_code == ExitCode.REACHED and not good.alarms()
    enough = {"trials": good.results["cost"]["trials"]}
    turning = Turning(server, "reasoning")
    assert place.run(concurrency=1, budget=enough).exit_code == ExitCode.SPENT
    turning.fix()
    went_on = place.run("--ask-again", concurrency=1, budget=enough)
    assert went_on.exit_code == ExitCode.REACHED and place.results["cost"]["trials"] == enough["trials"]
    verdicts = [[(row["first"], row["verdict"]) for row in of.results["pairs"]] for of in (place, good)]
    assert verdicts[0] == verdicts[1]


@pytest.mark.slow
def test_a_server_that_stays_bad_raises_the_alarm_again_without_a_loop(
    place: ScriptedPlace, server: ScriptedServer
) -> None:
    Turning(server, "empty")
    assert place.run(concurrency=1).exit_code == ExitCode.SPENT
    asked = len(server.requests)
    again = place.run("--ask-again", concurrency=1)
    assert again.exit_code == ExitCode.SPENT and "Stopped by an alarm" in again.stdout
    assert asked < len(server.requests) <= 2 * asked
    assert len(events_in(place.run_dir, AlarmRaised)) == 2


@pytest.mark.parametrize(
    ("how", "advice"), [("empty", "let it go on with --ask-again"), ("length", "here: name another")]
)
def test_a_run_that_an_alarm_ended_is_no_prior_of_its_model(
    place: ScriptedPlace, server: ScriptedServer, tmp_path: Path, how: str, advice: str
) -> None:
    turning = Turning(server, how, after=20 if how == "empty" else 0)
    assert place.run(concurrency=1).exit_code == ExitCode.SPENT
    turning.fix()
    alarmed, place.run_dir, asked = place.run_dir, tmp_path / "later", len(server.requests)
    refused = place.run(prior={"run": str(alarmed)}, concurrency=1)
    assert refused.exit_code == ExitCode.CONFIGURATION and not place.run_dir.exists()
    assert len(server.requests) == asked
    assert f"prior: {alarmed} has an alarm about bob: " in refused.stderr and advice in refused.stderr
    recorded = {"name": "bob", "recorded": str(alarmed)}
    assert place.run(models=["ada", recorded]).stderr == refused.stderr.replace("prior", "recorded models bob")
    assert not place.run_dir.exists()
    without = place.run("--dry-run", prior={"run": str(alarmed)}, models=("ada", "cyd"))
    assert without.exit_code == 0, without.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("how", "every"), [("length", 12), ("context", 24)])
def test_incomplete_answers_of_a_prior_stay_unsure(
    place: ScriptedPlace, server: ScriptedServer, tmp_path: Path, how: str, every: int
) -> None:
    server.finish_reason = lambda model, question, seed: how if model == "bob" and seed % every == 0 else "stop"
    assert place.run(concurrency=1).exit_code in ENDED
    with closing(RunReader.open(place.run_dir)) as reader:
        rows = [row for row in reader.graded_trials() if row.model == "bob" and row.trial.number < 6]
    cut = [(row.question, row.trial.number) for row in rows if row.trial.kinds and not row.trial.category]
    assert cut
    server.finish_reason = lambda *asked: "stop"
    earlier, place.run_dir = place.run_dir, tmp_path / "later"
    for _ in range(2):  # and a later start knows it, too
        assert place.run(concurrency=1, prior={"run": str(earlier)}).exit_code in ENDED
        (taken,) = events_in(place.run_dir, PriorTaken)
        assert taken.kinds is not None and taken.kinds.keys() == {"bob"}
        kinds, grades = taken.kinds["bob"], taken.outcomes["bob"]
        wrong = [(key, at) for key in kinds for at, kind in enumerate(kinds[key]) if kind and not grades[key][at]]
        assert sorted(wrong) == sorted(cut)
        rows = {row["name"]: row for row in place.results["models"]}
        assert not any(row["unsure"] for row in rows.values()) and not place.results["alarms"], "none of this run"
        assert {name for name, row in rows.items() if row["lowest"] < row["highest"]} == {"bob"}


WITHOUT_BOB = {"models": tuple(name for name in MODELS if name != "bob")}


def looks(place: ScriptedPlace) -> list[tuple[int, Any]]:
    """The stored looks, each with the configuration under which it was taken."""
    with closing(RunReader.open(place.run_dir)) as reader:
        return [(look.configuration, json.loads(json.dumps(look.body))) for look in reader.log.looks()]


MARGIN: list[dict[str, Any]] = [{"stopping": {"delta": 0.02}}]
MARGIN_AND_MODELS: list[dict[str, Any]] = [*MARGIN, WITHOUT_BOB, {}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "changes"),
    [(20, MARGIN_AND_MODELS), (62, MARGIN_AND_MODELS), (62, MARGIN)],
    ids=["before the first look", "after looks", "after looks, as the margin stays changed"],
)
def test_later_starts_replay_the_looks_of_a_model_that_was_asked_again(
    place: ScriptedPlace,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    changes: list[dict[str, Any]],
) -> None:
    monkeypatch.setitem(SKILLS, "ada", 7)
    monkeypatch.setitem(SKILLS, "cyd", 5)
    turning = Turning(server, "empty", after=after)
    alarmed = place.run(concurrency=1)
    assert alarmed.exit_code == ExitCode.SPENT, alarmed.stdout
    assert "a server has changed; bob" in alarmed.stdout, alarmed.stdout
    told = looks(place)
    for change in changes:
        place.run(concurrency=1, **change)
        assert looks(place)[: len(told)] == told
        told = looks(place)
    settled = [look for look in told if look[0] < len(changes)]  # of earlier settings
    turning.fix()
    settings = changes[-1]
    went_on = place.run("--ask-again", concurrency=1, **settings)
    assert went_on.exit_code in ENDED, went_on.stderr
    decided, pairs, asked = looks(place), place.results["pairs"], len(server.requests)
    assert decided[: len(settled)] == settled and not place.results["alarms"]
    looks_by_then = [event.looks for event in events_in(place.run_dir, SettingsChanged)]
    for _ in range(2):
        again = place.run(concurrency=1, **settings)
        assert again.exit_code == went_on.exit_code, again.stderr
        assert looks(place) == decided and place.results["pairs"] == pairs
    assert len(server.requests) == asked and not events_in(place.run_dir, LooksRetaken)
    assert looks_by_then == sorted(looks_by_then) and looks_by_then[0] > 0


def test_labels_of_discarded_answers_do_not_count_for_those_in_their_place(
    place: ScriptedPlace, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MODELS:  # so that nothing is decided before the places of the discarded answers are asked again
        monkeypatch.setitem(SKILLS, name, 6)
    turning = Turning(server, "empty", after=20)
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
