"""Models whose answers come back word for word, in runs that go on without them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest
from fakes import uniform
from scripted_server import ScriptedPlace, scripted_server

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.report.verified import verify_run
from adaptive_eval.running import resume

SKILLS = {"ada": 0.72, "bob": 0.6, "cid": 0.45}
WORDS = " because the number is what it is and was" * 50
QUESTIONS = 6


def answer(model: str, question: str, seed: int, skills: Mapping[str, float] = SKILLS) -> str:
    is_right = uniform(model, question, seed) < skills[model]
    return f"After {seed} steps, the answer is {question.split()[1] if is_right else 0}.{WORDS}"


def copying(model: str, question: str, seed: int) -> str:
    """Answers of bob do not depend on the seed."""
    return answer(model, question, 7 if model == "bob" else seed)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ScriptedPlace]:
    usual = {"sampling": {"temperature": 0.6, "max_tokens": 1000}, "trials": {"min": 4, "max": 120, "optimize": "cost"}}
    with scripted_server(tuple(SKILLS), copying) as server:
        yield ScriptedPlace(tmp_path, server, QUESTIONS, **usual)


def asked(place: ScriptedPlace) -> Counter[str]:
    return Counter(model for model, *_ in place.server.requests)


def verdicts(place: ScriptedPlace) -> dict[frozenset[str], str]:
    return {frozenset({pair["first"], pair["second"]}): pair["verdict"] for pair in place.results["pairs"]}


BETWEEN_OTHERS = frozenset({"ada", "cid"})


def test_it_is_asked_no_more_and_the_others_are_compared_without_it(place: ScriptedPlace) -> None:
    ended = place.run(code=ExitCode.SPENT)
    assert asked(place)["bob"] == 4 * QUESTIONS < asked(place)["ada"]
    found = verdicts(place)
    assert found.pop(BETWEEN_OTHERS) == "resolved", "though the one between them by score decides nothing"
    assert set(found.values()) == {"blocked"}
    rows = {row["name"]: row for row in place.results["models"]}
    assert (rows["ada"]["tier"], rows["cid"]["tier"], rows["bob"]["tier"]) == (1, 2, None)
    assert "Without bob, ada is best: " in ended.stdout and "bob (set aside)" in ended.stdout
    assert "undecided comparisons need answers of bob that do not come back word for word." in ended.stdout
    # it stays so at the next start, unless its owner lets such answers count
    before = place.server.requests.copy()
    assert place.run().exit_code == ExitCode.SPENT and verdicts(place)[BETWEEN_OTHERS] == "resolved"
    assert place.server.requests == before
    counted = place.run("--set", "stopping.on_alarm=never")
    assert "blocked" not in verdicts(place).values()
    assert asked(place)["bob"] > 4 * QUESTIONS and "set aside" not in counted.stdout
    place.run("--set", "stopping.on_alarm=all")
    assert "blocked" in verdicts(place).values() and "Without bob" in place.report("summary")


def test_once_its_server_is_fixed_it_can_be_asked_again(place: ScriptedPlace) -> None:
    ended = place.run()
    assert "while answers repeat: fix the server; then discard" in ended.stdout and "--ask-again\n" in ended.stdout
    before = asked(place)
    assert place.run("--ask-again").exit_code == ExitCode.SPENT, "nobody has fixed it"
    assert asked(place) - before == Counter({"bob": 4 * QUESTIONS}) and "Without bob" in place.report("summary")
    place.server.answer = answer
    again = place.run("--ask-again")
    assert again.exit_code != ExitCode.SPENT and "Without" not in again.stdout, again.stdout
    assert "bob: 24 answers that an alarm is about are discarded" in again.stdout
    assert "blocked" not in verdicts(place).values() and not place.results["alarms"]
    assert ("repeats", "bob") not in place.warnings() and ("discarded", "bob") in place.warnings()
    found = verdicts(place)
    place.server.answer = copying
    assert place.run("--ask-again").exit_code == ExitCode.CONFIGURATION and verdicts(place) == found


class Killed(BaseException):
    """Nothing is stored after it."""


def test_a_start_that_was_killed_while_it_asks_again_goes_on(place: ScriptedPlace) -> None:
    place.run()
    place.server.answer = answer
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr(resume, "_regrade", Mock(side_effect=Killed))
        place.run("--ask-again")
    checked = verify_run(place.run_dir)
    assert not checked.damages and "resuming the run updates it" in checked.notes[0]
    again = place.run("--ask-again")
    assert again.exit_code != ExitCode.SPENT and "blocked" not in verdicts(place).values(), again.output
    assert place.run("--ask-again").exit_code == ExitCode.CONFIGURATION, "nothing is left to ask again"


@pytest.mark.parametrize("changed", [["--set", "trials.max=60"], ["--set", "stopping.confidence=0.9"], []])
def test_it_can_be_asked_again_whatever_has_changed_since(place: ScriptedPlace, changed: list[str]) -> None:
    """Other settings, or (without any) a start that it was left out of."""
    place.run()
    if changed:
        assert place.run(*changed).exit_code == ExitCode.SPENT
    else:
        assert place.run(models=["ada", "cid"]).exit_code == ExitCode.REACHED
        assert place.run().exit_code == ExitCode.SPENT, "it is back, and its answers repeat"
        assert "Without bob, ada is best: " in place.report("summary")
    before = asked(place)["bob"]
    place.server.answer = answer
    again = place.run("--ask-again", *changed)
    assert asked(place)["bob"] >= before + 4 * QUESTIONS, again.stdout
    assert "blocked" not in verdicts(place).values() and "word for word" not in again.stdout
    assert place.run(*changed).exit_code == again.exit_code


def test_the_best_of_the_others_are_found_without_it(place: ScriptedPlace) -> None:
    ended = place.run(objective={"kind": "top_k", "k": 1}, stopping={"confidence": 0.8})
    assert "Without bob, ada is the best 1, " in ended.stdout and "ahead of cid by" in ended.stdout
    assert "ahead of bob" not in ended.stdout


@pytest.mark.parametrize("models", [["bob", "ada"], ["bob"]])
def test_a_run_that_they_stop_says_what_they_are_and_how_to_go_on(place: ScriptedPlace, models: list[str]) -> None:
    objective = {"kind": "precision", "half_width": 0.2}
    ended = place.run(models=models, objective=objective, stopping={"on_alarm": "any"}, code=ExitCode.SPENT)
    assert "For answers that repeat, fix the server and use --ask-again" in ended.stderr
    summary = place.report("summary")
    assert "No ranking: answers of bob come back word for word." in summary and "identical" not in summary
    assert "--ask-again" in summary.partition("to do")[2]
    place.server.answer = answer
    place.run("--ask-again", models=models, objective=objective, stopping={"on_alarm": "any"}, code=ExitCode.REACHED)


def test_copies_that_would_decide_the_first_look_decide_nothing(place: ScriptedPlace) -> None:
    """Copies between the others by score would decide both comparisons at the first look."""
    skills = {"ada": 0.95, "cid": 0.05}
    place.server.answer = lambda model, question, seed: answer(
        model, question, 1 if model == "bob" else seed, skills | {"bob": int(question.split()[1]) % 2}
    )
    ended = place.run(trials={"min": 8, "max": 120, "optimize": "cost"})
    assert verdicts(place)[BETWEEN_OTHERS] == "resolved" and ended.exit_code == ExitCode.SPENT
    assert [(look["resolved"], look["blocked"]) for look in place.results["looks"]] == [(1, 1)]
    assert asked(place) == Counter(dict.fromkeys(SKILLS, 8 * QUESTIONS))


def test_a_finished_run_that_has_let_copies_count_can_still_go_on_without_them(place: ScriptedPlace) -> None:
    usual = {"min": 4, "max": 6, "optimize": "cost"}
    ended = place.run("--set", "stopping.on_alarm=never", trials=usual)
    assert "set aside" not in ended.stdout and "Without" not in ended.stdout
    copies = asked(place)["bob"]
    refused = place.run("--ask-again", "--set", "stopping.on_alarm=never", trials=usual)
    assert refused.exit_code == ExitCode.CONFIGURATION and asked(place)["bob"] == copies, "what counts is kept"
    for trials in 6, 120:
        ended = place.run("--set", "stopping.on_alarm=all", trials=usual | {"max": trials})
        assert ended.exit_code == ExitCode.SPENT and "Without bob, " in ended.stdout and asked(place)["bob"] == copies
        assert verdicts(place)[BETWEEN_OTHERS] == ("resolved" if trials > 6 else "out_of_reach")


def test_a_server_that_copies_one_answer_for_each_of_a_request_is_found(place: ScriptedPlace) -> None:
    """Its short answers vary from request to request, so that all questions together look sampled."""
    skills = dict.fromkeys(SKILLS, 0.5)

    def short(model: str, question: str, seed: int) -> str:
        return answer(model, question, seed // 4 if model == "bob" else seed, skills).split(".")[0][-2:]

    place.server.answer = short
    place.write_questions(30)
    together, hot = {"samples_per_request": 4}, {"temperature": 1.0}
    ended = place.run(trials={"max": 24}, concurrency=together, sampling=hot)
    assert [(alarm.model, alarm.fault) for alarm in place.alarms()] == [("bob", "repeats")], ended.output
    assert "Without bob" in ended.stdout and {"blocked"} < {*verdicts(place).values()}


@pytest.mark.slow
def test_a_model_behind_a_cache_has_no_answers_until_it_is_switched_off(place: ScriptedPlace) -> None:
    """Short answers, which may be alike by chance, come again under the ids that they had; nobody asks for more of them
    by typing the same command."""
    is_cached = True

    def asked_as(model: str, seed: int) -> int:
        return 7 if model == "bob" and is_cached else seed

    def short(model: str, question: str, seed: int) -> str:
        return answer(model, question, asked_as(model, seed)).partition(".")[0][-2:]

    place.server.answer = short
    place.server.response_id = lambda model, question, seed: f"{model}-{question}-{asked_as(model, seed)}"
    place.write_questions(12)
    trials = {"min": 4, "max": 8, "optimize": "cost"}
    for _ in range(3):
        ended = place.run(trials=trials, code=(ExitCode.ENDPOINTS, ExitCode.SPENT))
        (row,) = [row for row in place.results["models"] if row["name"] == "bob"]
        assert row["tier"] is None and row["stored_trials"] <= 24
        assert [(alarm.model, alarm.fault) for alarm in place.alarms()] == [("bob", "repeats")]
    assert "switch off its cache" in ended.stdout and "--ask-again" in ended.stdout
    is_cached = False
    again = place.run("--ask-again", trials=trials)
    assert "Without bob" not in again.stdout and "blocked" not in verdicts(place).values(), again.stdout
    (row,) = [row for row in place.results["models"] if row["name"] == "bob"]
    assert row["score"] is not None and row["set_aside"] is None
