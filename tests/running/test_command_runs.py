"""Whole runs of commands: a shell script and a Python agent, which fail, are killed, fixed and asked on."""

import errno
import json
import os
import signal
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import typed
from live_runs import ENDED, Site, printed, stored, wait_until
from patient_time import HANGS
from stored_runs import events_in, stored_events, stored_results

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.endpoints.traffic import FIRST_ATTEMPTS
from adaptive_eval.machine.follow_up import FIRST_IN_FLIGHT
from adaptive_eval.notes import ModelSetAside

pytestmark = pytest.mark.slow

QUESTIONS = 6
SHELL = """\
#!/bin/sh
read -r line
seed=${line##*\\"seed\\": }; seed=${seed%%[!0-9]*}
echo "seed $seed in $PWD"
[ $(( (seed * 7919 + seed / 97) % 100 )) -lt "$1" ] && score=1 || score=0
echo "{\\"score\\": $score, \\"tokens\\": 100, \\"usd\\": 0.5}"
"""
AGENT = """\
import json, os, sys, time
from pathlib import Path

asked, (skill, *faults) = json.load(sys.stdin), sys.argv[1:]
with Path(os.environ["HOME"], "ledger").open("a") as ledger:
    ledger.write(f"{skill} {asked['id']} {asked['trial']}\\n")
Path("trace.json").write_text(json.dumps([asked, dict(os.environ)]))
if "key" in faults:
    print("my key is", os.environ["MY_KEY"])
if "sometimes" in faults and asked["id"] == "q2":
    sys.exit("no such tool: \\x1b[31mgrep")
if "hangs" in faults:
    os.spawnlp(os.P_NOWAIT, "sleep", "sleep", faults[-1])
    time.sleep(600)
right = int(asked["seed"]) * 7919 % 100 < int(skill)
print(json.dumps({"score": int(right), "usd": 0.25, "transcript": "trace.json", "answer": "yes" if right else "no"}))
"""
SECRET, OTHER = "sk-live-4f9c2e71d8a3b605e9c7", "sk-other-7a1b2c3d4e5f60718293"


@pytest.fixture(autouse=True)
def _commands(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ({"id": f"q{number}", "prompt": f"Task {number}"} for number in range(QUESTIONS))
    (site.folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (site.folder / "agent.sh").write_text(SHELL)
    (site.folder / "agent.sh").chmod(0o755)
    (site.folder / "agent.py").write_text(AGENT)
    monkeypatch.setenv("HOME", str(site.folder))
    monkeypatch.setenv("MY_KEY", SECRET)
    monkeypatch.setenv("OTHER_KEY", OTHER)


def model(name: str, *words: object, **keys: object) -> dict[str, object]:
    return {"name": name, "command": [*map(str, words)], **keys}


def shell(name: str, skill: int, **keys: object) -> dict[str, object]:
    return model(name, "./agent.sh", skill, **keys)


def agent(name: str, skill: int, *faults: object, **keys: object) -> dict[str, object]:
    return model(name, sys.executable, "./agent.py", skill, *faults, **keys)


def write(site: Site, *models: dict[str, object], **changes: object) -> Path:
    settings = {"questions": "tasks.jsonl", "grader": "reported", "models": list(models), "trials": {"max": 4}}
    (path := site.folder / "run.yaml").write_text(yaml.safe_dump(settings | changes))
    return path


def ledger(site: Site) -> list[str]:
    path = site.folder / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def report(site: Site) -> dict[str, Any]:
    return {row.name: row for row in stored_results(site.directory()).models}


def test_no_secret_but_those_named_reaches_a_command_or_the_run(site: Site) -> None:
    site.run(write(site, agent("base", 30, "key", env=["MY_KEY"]), agent("new", 90), trials={"max": 2}), code=ENDED)
    texts = [trial.answer.reasoning for trial in stored(site) if trial.model == "base"]
    assert all((text or "").startswith("my key is ***\n") for text in texts)
    transcripts = sorted((site.directory() / "logs" / "transcripts").iterdir())
    assert len(transcripts) == len(stored(site)), "each trial has one"
    for path in transcripts:
        asked, environment = json.loads(path.read_text())
        assert asked.keys() == {"id", "prompt", "trial", "seed"}
        assert environment.get("MY_KEY") == ("***" if path.name.startswith("base") else None)
        assert "OTHER_KEY" not in environment and environment["PATH"] == os.environ["PATH"]
    for path in (path for path in site.directory().rglob("*") if path.is_file()):
        assert SECRET.encode() not in path.read_bytes() and OTHER.encode() not in path.read_bytes(), path
    line = json.loads((texts[0] or "").splitlines()[-1])
    assert (site.directory() / line["transcript"]).is_file()


def test_a_command_that_always_fails_ends_the_run_after_its_first_trials(site: Site) -> None:
    bad = model("bad", "sh", "-c", "echo x >> ~/ledger; echo 'no such skill: v2' >&2; exit 3")
    config = write(site, bad, shell("new", 90))
    ended = site.run(config, code=ExitCode.ENDPOINTS)
    assert "bad: its command fails: on q" in ended.output
    assert "it exited with status 3; its standard error ends with: no such skill: v2" in ended.output
    assert FIRST_ATTEMPTS <= len(ledger(site)) <= FIRST_IN_FLIGHT * FIRST_ATTEMPTS
    tried = site.run(config, "--dry-run", "--run-dir", str(site.directory("dry")))
    assert tried.exit_code == ExitCode.ENDPOINTS and "no such skill: v2" in tried.output
    assert "max_tokens" not in tried.output
    assert "score 1: correct (1)" in tried.output or "score 0: wrong (0)" in tried.output
    fixed = site.run(write(site, shell("bad", 30), shell("new", 90)), code=ENDED)
    assert report(site)["bad"].trials and report(site)["new"].trials
    again = site.run(write(site, shell("bad", 30), shell("new", 90)))
    assert again.exit_code == fixed.exit_code, "its settings are stored"
    changed = site.run(write(site, shell("bad", 31), shell("new", 90)))
    assert changed.exit_code == ExitCode.CONFIGURATION and "models.bad.command" in changed.stderr


def test_a_question_on_which_it_always_fails_has_no_answer_and_is_never_wrong(site: Site) -> None:
    config = write(site, agent("base", 90, "sometimes"), agent("new", 90), trials={"min": 1, "max": 2})
    site.run(config, "--set", "stopping.on_alarm=never")
    missing = [trial for trial in stored(site) if trial.category is None]
    assert {(trial.model, trial.question) for trial in missing} == {("base", "q2")}
    assert ledger(site).count("90 q2 0") in (FIRST_ATTEMPTS + 1, 5 + 1), "attempts of base, and one of new"
    why = "every attempt at it failed, and others are answered: its command exited with status 1"
    assert why in str(missing[0].grader_error)
    assert report(site)["base"].ungraded == len(missing)


def test_a_program_that_is_edited_between_two_starts_is_another_model(site: Site) -> None:
    (site.folder / "skill.md").write_text("Be careful.")
    config = write(site, shell("base", 30), agent("new", 90, "./skill.md"), trials={"min": 2, "max": 2})
    assert site.run(config).exit_code in ENDED
    (site.folder / "other.md").write_text("Named by no command.")
    assert site.run(config).exit_code in ENDED
    (site.folder / "skill.md").write_text("Be quick.")
    (site.folder / "agent.sh").write_text(f"{SHELL}# a comment\n")
    refused = site.run(config, code=ExitCode.CONFIGURATION)
    assert "models.base: agent.sh was edited after the start of the run" in refused.output
    assert "models.new: skill.md was edited after the start of the run" in refused.output
    assert "agent.py" not in refused.output


def test_a_cap_on_usd_counts_what_commands_report(site: Site) -> None:
    config = write(site, shell("base", 50), shell("new", 50), budget={"usd": 9.8}, trials={"min": 1, "max": 50})
    assert "nothing bounds the cost of an answer of base, new," in site.run(config, code=ExitCode.SPENT).output
    spent = sum(trial.cost.usd for trial in stored(site))
    assert 5.0 < spent <= 9.8, "equal answers are reserved at 1.5 times their cost"
    silent = model("silent", "sh", "-c", 'echo {\\"score\\": 1}')
    cheapest = {"kind": "cheapest", "delta": 0.2}
    for name, changes, why in (
        ("capped", {"budget": {"usd": 9.8}}, "which budget.usd counts"),
        ("chosen", {"objective": cheapest}, "by which the cheapest is chosen"),
    ):
        refused = site.run(write(site, silent, shell("new", 50), **changes), "--run-dir", site.directory(name))
        assert refused.exit_code == ExitCode.ENDPOINTS
        assert f'silent: its command has no "usd" in its last line, {why}' in refused.output


def test_what_failed_attempts_have_used_is_told_and_counted(site: Site) -> None:
    line = 'read -r line; case $line in *q2*) echo {\\"usd\\": 0.5}; exit 1;; esac; echo {\\"score\\": 1, \\"usd\\": 1}'
    config = write(site, model("base", "sh", "-c", line), shell("new", 50), trials={"min": 1, "max": 1})
    ended = site.run(config, "--set", "stopping.on_alarm=never")
    assert "5 attempts at an answer failed, and used 2.5 USD; no score counts them" in ended.output, ended.output
    assert "$2.50 on failed attempts at answers of base" in ended.output


def test_other_graders_grade_what_it_answers_and_say_that_they_leave_its_score(site: Site) -> None:
    (site.folder / "tasks.jsonl").write_text(json.dumps({"id": "q0", "prompt": "?", "answer": "yes"}))
    site.run(write(site, agent("base", 30), agent("new", 90), grader="exact", trials={"min": 2, "max": 2}))
    assert {(trial.answer.text, trial.category) for trial in stored(site)} <= {("yes", 1), ("no", 0)}
    events = stored_events(site.directory())
    assert any("of which the grader exact takes no notice" in str(event) for event in events)
    again = typed("regrade", site.directory(), "--config", write(site, agent("base", 30), agent("new", 90)))
    assert again.exit_code == ExitCode.REACHED, again.output
    assert all((trial.answer.text == "yes") == trial.category for trial in stored(site))


def test_a_folder_in_any_state_ends_no_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = site.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))  # other tests run commands at the same time
    scored = 'echo {\\"score\\": 1}'
    lines = {"pipe": "mkfifo pipe", "gone": 'rm -r "$PWD"', "link": 'rm -r "$PWD"; ln -s / "$PWD"'}
    models = [model(name, "sh", "-c", f"echo 1 >trace; {line}; {scored}") for name, line in lines.items()]
    site.run(write(site, *models, trials={"min": 1, "max": 1}, stopping={"on_alarm": "never"}), code=ExitCode.SPENT)
    assert not list(temporary.glob("adaptive-eval-commands-*"))


def test_a_transcript_from_elsewhere_is_not_taken(site: Site) -> None:
    (site.folder / "private.txt").write_text("private")
    code = 'ln -s ~/private.txt link; mkfifo pipe; echo {\\"score\\": 1, \\"transcript\\": \\"NAME\\"}'
    for name in ("link", "pipe", "../../private.txt", str(site.folder / "private.txt"), "missing", "."):
        words = ("sh", "-c", code.replace("NAME", name))
        config = write(site, model("base", *words), shell("new", 50), trials={"min": 1, "max": 1})
        site.run(config, "--run-dir", site.directory("run-" + name.replace("/", "_")), code=ENDED)
    assert not list((site.folder / "runs").rglob("transcripts/*"))


def test_a_stop_waits_for_commands_as_long_as_they_may_take(site: Site) -> None:
    hanging = agent("new", 90, "hangs", f"92{os.getpid()}", concurrency=1)
    process = site.start(write(site, agent("base", 30, timeout="3h", concurrency=1), hanging))
    wait_until(lambda: ledger(site), process)
    process.send_signal(signal.SIGTERM)
    assert "for 3h00m at most" in printed(process, "stopping: ")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.STOPPED


@pytest.mark.parametrize(
    ("lacking", "says"), [(errno.ENOSPC, "Free some space there, or set TMPDIR"), (errno.EMFILE, "`ulimit -n`")]
)
def test_a_full_machine_blames_no_command(site: Site, monkeypatch: pytest.MonkeyPatch, lacking: int, says: str) -> None:
    config = write(site, shell("base", 30, concurrency=1), shell("new", 90, concurrency=1), trials={"min": 2, "max": 2})
    open_file, opened = tempfile.TemporaryFile, count()

    def opening(*arguments: Any, **options: Any) -> Any:
        if next(opened) >= 3:
            raise OSError(lacking, os.strerror(lacking))
        return open_file(*arguments, **options)

    with monkeypatch.context() as lack:
        lack.setattr(tempfile, "TemporaryFile", opening)
        ended = site.run(config)
    assert ended.exit_code == ExitCode.FAILED and says in ended.output and "Traceback" not in ended.output
    assert not events_in(site.directory(), ModelSetAside)
    site.run(config, code=ENDED)
    assert len(stored(site)) == 4 * QUESTIONS
