"""Commands as models: one process of a command, of which nothing is left, and what it is given and prints."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from patient_time import HANGS, until
from process_list import all_end, commands

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.config.run import SOURCES, ModelConfig
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.types import Message, Prompt
from adaptive_eval.graders.types import MarkedAnswer
from adaptive_eval.questions.types import Question
from adaptive_eval.running.event_loop import run_to_end
from adaptive_eval.supplies.commands import process as process_module
from adaptive_eval.supplies.commands.outcome import (
    CommandOutcome,
    answer_cost,
    make_answer,
    question_text,
    read_outcome,
)
from adaptive_eval.supplies.commands.process import BoundedOutput, CommandLine, EndedCommand
from adaptive_eval.supplies.opening import SUPPLIES

PYTHON = (sys.executable, "-S", "-c")


async def run(folder: Path, *words: str, seconds: float = HANGS, asked: bytes = b"") -> EndedCommand:
    return await CommandLine(words, dict(os.environ), seconds).run(asked, folder, ())


def running(mark: str) -> list[str]:
    return [command for _, command in commands() if mark in command]


def open_files() -> int:
    return len([*Path("/dev/fd").iterdir()])


@pytest.mark.parametrize("size", [0, 5, 10, 25, 26, 1000])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_beginning_and_the_end_are_kept(size: int, chunk: int) -> None:
    stream = bytes(97 + at % 26 for at in range(size))
    output = BoundedOutput(10, 15)
    for at in range(0, size, chunk):
        output.add(stream[at : at + chunk])
    gap = f"\n[{size - 25:,} bytes are left out]\n" if size > 25 else ""
    expected = stream.decode() if size <= 25 else stream[:10].decode() + gap + stream[-15:].decode()
    assert output.text == expected and output.size == size


async def test_it_reads_its_question_and_its_streams_are_apart(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.stdin.read(), os.getcwd()); print('bad', file=sys.stderr); sys.exit(3)"
    ended = await run(tmp_path, *PYTHON, code, asked=b"asked")
    assert ended[:2] == (f"asked {tmp_path}\n", "bad\n")
    assert ended.problem == "exited with status 3" and ended.seconds > 0.0
    assert (await run(tmp_path, "true", asked=b"x" * 10_000_000)).problem is None, "what is never read does not block"


async def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    opened = []
    for _ in range(10):
        with pytest.raises(LaunchFailed, match="cannot be started: .*no-such-program"):
            await run(tmp_path, "no-such-program")
        opened.append(open_files())
    assert opened[-1] < opened[0] + 5, "whatever the first start, or another test, opens for good stays open"


def test_the_next_file_stays_open_where_somebody_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "DRAIN_SECONDS", 0.0)
    start, written = CommandLine._start, list[int]()

    async def start_and_keep(line: CommandLine, asked: bytes, folder: Path, holds: Any, *ends: int) -> Any:
        written.append(os.dup(ends[0]))
        return await start(line, asked, folder, holds, *ends)

    monkeypatch.setattr(CommandLine, "_start", start_and_keep)

    async def main() -> None:
        await run(tmp_path, "echo", "done")
        with ExitStack() as stack:
            opened = [stack.enter_context((tmp_path / str(number)).open("w")) for number in range(8)]
            for _ in range(8):
                await asyncio.sleep(0)
            for file in opened:
                os.fstat(file.fileno())

    run_to_end(main())
    os.close(written[0])


@pytest.mark.slow
async def test_what_it_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    mark = f"sleep 98{os.getpid()}"
    ended = await run(tmp_path, "sh", "-c", f"{mark} & (trap '' TERM; setsid {mark}) & sleep 0.2; echo done")
    assert ended.problem is None and ended.output == "done\n"
    assert not running(mark)


async def test_late_it_is_ended_with_all_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "GRACE_SECONDS", 0.2)
    mark = f"sleep 97{os.getpid()}"
    ended = await run(tmp_path, "sh", "-c", f"trap '' TERM; echo begun; {mark} & {mark}", seconds=0.5)
    assert ended.problem == "did not end within 0.5 s" and ended.output == "begun\n"
    assert not running(mark)


async def test_cancelled_it_is_killed_at_once(tmp_path: Path) -> None:
    mark = f"sleep 96{os.getpid()}"
    task = asyncio.create_task(run(tmp_path, "sh", "-c", f"trap '' TERM; touch begun; {mark}"))
    await until(lambda: (tmp_path / "begun").exists())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not running(mark))


KILLED = """
import asyncio, os, sys
from adaptive_eval.supplies.commands.process import CommandLine
from pathlib import Path
asyncio.run(CommandLine(["sh", "-c", f"touch begun; {sys.argv[1]}"], os.environ, 600.0).run(b"", Path(), ()))
"""


def test_nothing_is_left_once_the_run_is_killed(tmp_path: Path) -> None:
    mark = f"sleep 95{os.getpid()}"
    killed = subprocess.Popen([sys.executable, "-c", KILLED, mark], cwd=tmp_path)
    assert all_end(lambda: () if (tmp_path / "begun").exists() else (1,))
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert all_end(lambda: running(mark))


@pytest.mark.slow
async def test_a_flood_takes_no_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "yes | head -c 300000000; echo; echo '{\"score\": 1}'; yes x | head -c 100000000 >&2"
    ended = await run(tmp_path, "sh", "-c", code)
    assert ended.problem is None and ended.output.startswith("y\ny\n") and ended.output.endswith('\n{"score": 1}\n')
    assert "bytes are left out]" in ended.output and len(ended.output) < 2**22 and len(ended.errors) < 10_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "KiB"


async def test_an_endless_flood_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "MAX_PRINTED_BYTES", 1_000_000)
    for stream in ("1", "2"):
        ended = await run(tmp_path, "sh", "-c", f"yes >&{stream}")
        assert (ended.problem or "").startswith("printed more than ")


QUESTION = Question("q1", "1 + 1?", "2", ("1", "2"), "sums", {"repo": "x", "id": "other"})
SECRET = "sk-live-4f9c2e71d8a3b605e9c7"


def given(*names: str, prompt: Prompt | None = None) -> dict[str, Any]:
    values = json.loads(question_text(QUESTION, prompt or Prompt(text="1 + 1?"), 3, 77, names))
    assert isinstance(values, dict)
    return values


def outcome(output: str, *, needs_score: bool = False, **changes: Any) -> CommandOutcome:
    values: dict[str, Any] = {"errors": "", "seconds": 1.5, "problem": None}
    return read_outcome(EndedCommand(output=output, **values | changes), Redactor([SECRET]), needs_score=needs_score)


def test_a_command_gets_the_fields_that_are_named_and_no_answer_key_else() -> None:
    asked = {"id": "q1", "prompt": "1 + 1?", "trial": 3, "seed": 77}
    assert given() == asked
    assert given("choices", "cluster", "repo", "id") == asked | {"choices": ["1", "2"], "cluster": "sums", "repo": "x"}
    assert given("answer") == asked | {"answer": "2"}
    chat = Prompt(messages=(Message("system", "Be brief."), Message("user", "1 + 1?")))
    assert given(prompt=chat)["prompt"] == "Be brief.\n\n1 + 1?"


@pytest.mark.parametrize(
    ("output", "text", "reasoning"),
    [
        ("so\nit is 2\n", "so\nit is 2", None),
        ('so\nit is 2\n{"tokens": 7}\n', "so\nit is 2", '{"tokens": 7}'),
        ('so\n{"answer": 2, "usd": 0.5}', "2", 'so\n{"answer": "2", "usd": 0.5}'),
        ('{"answer": ""}\n', "", '{"answer": ""}'),
        ('{"a": 1}', '{"a": 1}', None),
    ],
)
def test_the_answer_is_what_is_given_or_else_printed(output: str, text: str, reasoning: str | None) -> None:
    answer = make_answer(outcome(output), 5, "./agent", 2, is_graded=False)
    assert (answer.text, answer.reasoning, answer.seed, answer.attempts, answer.latency) == (text, reasoning, 5, 2, 1.5)
    assert not isinstance(answer, MarkedAnswer) and ("empty" in answer.signals) == (not text)


def test_a_score_is_the_grade_and_its_usage_the_cost() -> None:
    answer = make_answer(outcome('{"score": 1, "tokens": 9, "usd": 0.25}', needs_score=True), 5, "x", 1, is_graded=True)
    assert isinstance(answer, MarkedAnswer) and answer.marks is not None and answer.marks.signals["is_correct"] is True
    assert not answer.signals, "it says nothing, and is not empty"
    assert answer_cost(answer) == Cost(9, 0.25) and answer.completion_tokens == 9
    assert answer_cost(make_answer(outcome("2"), 5, "x", 1, is_graded=False)) == Cost()
    assert outcome('{"usd": 0.5}', problem="failed").result.usd == 0.5
    assert outcome('{"usd": -1}', problem="failed").result.usd is None


@pytest.mark.parametrize(
    ("output", "changes", "problem"),
    [
        ('{"score": 1}', {"problem": "did not end within 60 s"}, "did not end within 60 s"),
        ('{"score": "1"}', {}, "printed a result that cannot be used: its score must be a number from -1e+09 to"),
        ("", {}, "printed no answer"),
        ('{"tokens": 3}', {}, "printed no answer"),
        (
            "all good",
            {"needs_score": True},
            "reported no score: its last line is 'all good', and must be like {\"score\"",
        ),
        ('{"answer": 2}', {"needs_score": True}, "reported no score: its last line is '{\"answer\": 2}'"),
    ],
)
def test_what_is_no_answer_has_a_reason(output: str, changes: dict[str, Any], problem: str) -> None:
    assert (outcome(output, **changes).problem or "").startswith(problem)


def test_the_end_of_standard_error_is_shown_safely() -> None:
    errors = "first\n" * 50 + f"\x1b[31mno key {SECRET}\x1b[0m\r\n\u202etraceback" + "x" * 5000
    problem = outcome(f"\x1b]0;title\x07 {SECRET}", problem="exited with status 1", errors=errors).problem or ""
    head, *lines = problem.splitlines()
    assert head == f"exited with status 1; its standard error ends with: {lines[-1].strip()}" and "xxx" in head
    assert lines[:-1] == ["  first", "  first", "  no key ***"]
    assert not set(problem) & {"\x1b", "\r", "\u202e", "\x07"} and SECRET not in problem and len(problem) < 500
    shown_once = outcome("", problem="exited with status 3", errors="no such skill: v2\n").problem
    assert shown_once == "exited with status 3; its standard error ends with: no such skill: v2"
    needs_score = outcome(f"\x1b]0;title\x07 {SECRET}", needs_score=True).problem or ""
    assert "\x1b" not in needs_score and SECRET not in needs_score


def test_every_supply_is_opened_by_a_key_whose_meaning_the_configuration_knows() -> None:
    assert SUPPLIES.keys() <= SOURCES.keys() <= ModelConfig.model_fields.keys()
