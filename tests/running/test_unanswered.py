"""Whole runs against servers that refuse or fail some requests, and with few open files: no answer counts as wrong."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from contrary_server import MODELS, Asked, Reply, answer, listening, write_config
from live_runs import ENDED, models_at
from patient_time import HANGS
from stored_runs import events_in, stored_results, stored_trials

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.endpoints import settings
from adaptive_eval.machine.records import FINISHED, Note, Row
from adaptive_eval.machine.trial import JUDGING, Trial
from adaptive_eval.notes import ModelSetAside, OnlyFailures, ReplicaLost, ServersNoticed, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.read import LogReader
from adaptive_eval.store.write import RunStore

COMMIT = RunStore.commit
Outcomes = dict[tuple[str, str, int], int | None]
WORDS = "The model produced output that does not match the expected format"


pytestmark = pytest.mark.usefixtures("short_pauses")


def run(config: Path, *options: str) -> tuple[int, str]:
    result = typed("run", config, "--display", "plain", "--run-dir", config.parent / "run", *options)
    return result.exit_code, result.output


def outcomes_of(run: Path) -> Outcomes:
    return {(trial.model, trial.question, trial.trial): trial.category for trial in stored_trials(run)}


def killed_once_decided(store: RunStore, rows: Sequence[Row], **more: Any) -> list[Row]:
    """Write rows as a process does that is killed before it notes the end of the run."""
    if any(isinstance(record, Note) and record.kind == FINISHED for _, record in rows):
        raise OSError("killed")
    return COMMIT(store, rows, **more)


def notes_of(directory: Path) -> list[tuple[int, Note]]:
    with closing(LogReader.open(directory)) as reader:
        return reader.notes()


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads((folder / "run" / "results.json").read_text())["models"]}


def failing(model: str, share: int) -> Any:
    """A script that always fails a share of the model's requests, chosen by seed."""

    def script(asked: Asked) -> Reply | None:
        fails = asked.model == model and "Question" in asked.prompt and asked.seed % share == 0
        return Reply(500, {"error": {"message": WORDS, "code": 500}}) if fails else None

    return script


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        ({"ada": "ada", "bob": "bob"}, ExitCode.REACHED),  # bob has 25% at most
        pytest.param({"ada": "ada", "carl": "ada", "bob": "bob"}, ExitCode.SPENT, marks=pytest.mark.slow),
    ],
    ids=["all is decided", "two alike are not"],
)
def test_a_resume_asks_nothing_of_a_decided_comparison(tmp_path: Path, names: dict[str, str], ends: ExitCode) -> None:
    with listening(failing("bob", 4)) as server:
        models = [{"name": name, "base_url": server.base_url, "model": model} for name, model in names.items()]
        config = write_config(tmp_path, server, models=models)
        code, output = run(config)
        assert code == ends, output
        assert "6 of its 24 trials have no grade, more than 5%" in rows(tmp_path)["bob"]["set_aside"]
        assert "fix the server" not in output and ("--set stopping.delta=" in output) == (ends is ExitCode.SPENT)
        before, asked = outcomes_of(tmp_path / "run"), len(server.statuses)
        assert run(config)[0] == code
    assert outcomes_of(tmp_path / "run") == before and len(server.statuses) == asked


def alike(asked: Asked) -> Reply | None:
    """Both answer alike, but bob fails a quarter of the requests."""
    return failing("bob", 4)(asked) or Reply(body=answer(replace(asked, model="ada")))


@pytest.mark.slow
def test_a_model_that_lacks_too_many_answers_is_asked_again_once_its_server_is_repaired(tmp_path: Path) -> None:
    with listening(alike) as server:
        config = write_config(tmp_path, server)
        code, output = run(config)
        assert code != ExitCode.REACHED, output
        assert "6 of its 24 trials have no grade, more than 5%" in rows(tmp_path)["bob"]["set_aside"]
        assert "; on question q" in output and WORDS in output
        assert "fix the servers or commands that fail on some questions every time" in output
        server.script = lambda asked: None
        code, output = run(config)
        assert code == ExitCode.SPENT, output  # too close, but for no missing answer
    assert "6 of its requests had no answer when it was set aside, and were asked again" in output
    assert rows(tmp_path)["bob"]["set_aside"] is None and None not in outcomes_of(tmp_path / "run").values()


@pytest.mark.slow
def test_a_model_with_a_decided_comparison_is_asked_again_on_request_only(tmp_path: Path) -> None:
    def script(asked: Asked) -> Reply | None:
        """Two answer rightly and one wrongly; bob fails a quarter of the requests."""
        text = "The answer is 8." if asked.model == "carl" else "The answer is 7."
        return failing("bob", 4)(asked) or Reply(body=answer(asked, content=text))

    def always_failing(asked: Asked) -> Reply | None:
        return Reply(500, {"error": {"message": WORDS}}) if asked.model == "bob" else script(asked)

    def verdicts() -> dict[tuple[str, str], str]:
        return {(pair.first, pair.second): pair.verdict for pair in stored_results(tmp_path / "run").pairs}

    names = ("ada", "bob", "carl")
    page = Reply(body={"data": [{"id": name} for name in names]})
    with listening(script, lambda path, _: page if path == "/v1/models" else None) as server:
        config = write_config(tmp_path, server, models=models_at(server.base_url, *names))
        code, output = run(config)
        decided = {names for names, verdict in verdicts().items() if verdict == "resolved"}
        assert ("bob", "carl") in decided and verdicts()["ada", "bob"] == "blocked", output
        assert rows(tmp_path)["bob"]["set_aside"] and "--ask-again" in output, output
        before, server.script = outcomes_of(tmp_path / "run"), always_failing
        assert run(config)[0] == code
        assert verdicts()["bob", "carl"] == "resolved"
        assert before.items() <= outcomes_of(tmp_path / "run").items()
        server.script = lambda asked: script(replace(asked, seed=1))
        code, output = run(config, "--ask-again")
    assert "requests had no answer when it was set aside, and were asked again" in output
    assert rows(tmp_path)["bob"]["set_aside"] is None and None not in outcomes_of(tmp_path / "run").values()


def test_a_resume_keeps_a_decision_after_which_the_run_was_killed(tmp_path: Path) -> None:
    with listening(failing("bob", 4)) as server:
        config = write_config(tmp_path, server)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="killed"):
            patch.setattr(RunStore, "commit", killed_once_decided)
            run(config)
        assert not any(note.kind == FINISHED for _, note in notes_of(tmp_path / "run"))
        before, asked = outcomes_of(tmp_path / "run"), len(server.statuses)
        code, output = run(config)
        assert code == ExitCode.REACHED, output
    assert outcomes_of(tmp_path / "run") == before and len(server.statuses) == asked


def test_a_resume_keeps_the_answers_of_a_model_whose_server_is_gone(tmp_path: Path) -> None:
    with listening(alike) as server:
        config = write_config(tmp_path, server)
        code, output = run(config)
        assert code == ExitCode.SPENT, output
        before = outcomes_of(tmp_path / "run")
    code, output = run(config)
    assert code == ExitCode.SPENT and "were asked again" not in output, output
    assert outcomes_of(tmp_path / "run") == before


def test_a_revoked_key_sets_one_model_aside_and_a_resume_goes_on(tmp_path: Path) -> None:
    """It is believed after some rounds of refusals. Requests are sent one by one then, if replies are no slower than
    the pauses are short; at worst a round has as many as may be in flight."""
    revoked = [True]

    def script(asked: Asked) -> Reply | None:
        return Reply(403, b"revoked") if revoked[0] and asked.model == "bob" and asked.number >= 10 else None

    with listening(script) as server:
        config = write_config(tmp_path, server)
        assert run(config)[0] != ExitCode.REACHED
        (aside,) = events_in(tmp_path / "run", ModelSetAside)
        assert (aside.model, aside.reason) == ("bob", "HTTP 403: revoked (the key may not use this model)")
        rounds = settings.EndpointSettings().refusals
        assert rounds <= server.statuses.count(403) <= rounds * 4
        before = outcomes_of(tmp_path / "run")
        assert sum(key[0] == "ada" for key in before) == 24
        revoked[0] = False
        code, output = run(config)
        assert code == ExitCode.REACHED, output
        assert server.statuses.count(200) == 48
    after = outcomes_of(tmp_path / "run")
    assert before.items() <= after.items() and len(after) == 48 and None not in after.values()


FILES = 72


@pytest.mark.slow
@pytest.mark.parametrize("client", ["http", "openai"])
def test_a_limit_on_open_files_is_not_blamed_on_servers(tmp_path: Path, client: str) -> None:
    """Each request needs a file: fewer are in flight at a time."""
    with listening(lambda asked: None) as server:
        models, run = models_at(server.base_url, *MODELS, client=client), tmp_path / "run"
        config = write_config(tmp_path, server, models=models, trials={"min": 10, "max": 10}, concurrency=128)
        command = f'ulimit -n {FILES} && exec "$@"'
        words = [sys.executable, "-m", "adaptive_eval", "run", str(config), "--display", "plain", "--run-dir", str(run)]
        with (run_log := tmp_path / "said").open("w") as output:
            process = subprocess.Popen(["sh", "-c", command, "sh", *words], stdout=output, stderr=output)
        assert process.wait(HANGS) == ExitCode.REACHED, run_log.read_text()
    with closing(RunReader.open(run)) as reader:
        events = reader.events()
        assert reader.trial_count() == 120
        assert all(row.retries == 0 for row in reader.sums())
    assert not [event for event in events if isinstance(event, ModelSetAside | ReplicaLost | OnlyFailures)]
    assert {event.notice for event in events_of_kind(events, ServersNoticed)} == {"few_open_files"}
    assert f"this process may have only {FILES}" in run_log.read_text() and "ulimit -n" in run_log.read_text()


def stopped_before_its_grade(store: RunStore, rows: Sequence[Row], **more: Any) -> list[Row]:
    """Write a missing answer as a start does that stops: without a grade, which the next start is to give."""
    left = [
        (seq, record._replace(state=JUDGING, grade=None))
        if isinstance(record, Trial) and record.kinds & AnswerKind.UNANSWERED
        else (seq, record)
        for seq, record in rows
    ]
    written = COMMIT(store, left, **more)
    if left != list(rows):
        raise OSError("killed")
    return written


def test_a_missing_answer_that_a_stop_left_without_a_grade_keeps_no_run_from_going_on(tmp_path: Path) -> None:
    with listening(failing("bob", 17)) as server:
        config = write_config(tmp_path, server)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="killed"):
            patch.setattr(RunStore, "commit", stopped_before_its_grade)
            run(config)
        assert not any(note.kind == FINISHED for _, note in notes_of(tmp_path / "run"))
        code, output = run(config)
    assert code in ENDED and "budget" not in output, output
    assert len(outcomes_of(tmp_path / "run")) == 2 * 24
