"""Grading for the event loop: hung, dying and greedy graders are grader errors, and cost nobody else."""

import asyncio
import json
import os
import select
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patient_time import HANGS, let_pass, until

from adaptive_eval.base.errors import GraderError
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders import worker
from adaptive_eval.graders.function import Python, make_marks
from adaptive_eval.graders.mathematics import Math
from adaptive_eval.graders.pool import KILL_GRACE, GradingPool
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.graders.text import Regex
from adaptive_eval.graders.types import GraderOptions, GradingLimits, Marks, WorkerSettings
from adaptive_eval.graders.worker import Worker
from adaptive_eval.machine.trial import GRADING, Trial
from adaptive_eval.questions.types import Question
from adaptive_eval.running.grading import grade_answer

HERE = Path(__file__).parent
QUESTION = Question("q7", "?", "42")
BINARY = open_rubric(RubricConfig())
HANGING = Python(function="hanging:grade")
LIMITS = GradingLimits(timeout=HANGS, workers=1)
GradeText = Callable[[str], Any]


def said(text: str) -> Answer:
    return Answer(text, "stop", seed=0, replica="r", latency=1.0)


@asynccontextmanager
async def pool(grader: GraderOptions, question: Question = QUESTION, **limits: Any) -> AsyncIterator[GradeText]:
    opened = GradingPool(grader, BINARY, WorkerSettings(LIMITS.model_copy(update=limits), HERE))

    async def grade(text: str) -> Any:
        return await opened.grade(said(text), question)

    try:
        yield grade
    finally:
        await opened.close()


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Worker]:
    """Every worker that is started."""
    workers: list[Worker] = []
    begin = Worker.start

    async def start(settings: WorkerSettings) -> Worker:
        workers.append(await begin(settings))
        return workers[-1]

    monkeypatch.setattr(Worker, "start", start)
    return workers


async def refusal(grade: GradeText, text: str) -> str:
    with pytest.raises(GraderError) as caught:
        await grade(text)
    return str(caught.value)


class Broken(GraderOptions):
    """A grader with a defect."""

    def grade(self, text: str, question: Question) -> Marks:
        raise ZeroDivisionError(text)


async def test_a_defect_of_a_cheap_grader_is_a_grader_error() -> None:
    async with pool(Broken()) as grade:
        assert await refusal(grade, "x") == "the grader raised ZeroDivisionError: x"


async def test_what_a_function_may_return_raise_and_print() -> None:
    async with pool(HANGING) as grade:
        before = (await grade("pid")).extracted
        assert [(await grade(text)).category for text in ("yes", "no", "half", "less")] == [1, 0, 1, 0]
        assert (await grade("half")).signals["score"] == 0.5
        full = await grade("signals")
        assert (full.signals, full.extracted) == ({"is_correct": True, "style": "dry", "length": 3.0}, "42")
        assert (await grade("folder")).extracted == str(HERE)
        assert "must return true, false, a number" in await refusal(grade, "nothing")
        assert "a finite number or a text for signal thing" in await refusal(grade, "odd")
        assert "for signal score, but got nan" in await refusal(grade, "nan")
        assert await refusal(grade, "raise up") == "the grader raised KeyError: 'up'"
        assert (await grade("print noise")).category == 1
        assert (await grade("yes")).category == 1
        assert (await grade("pid")).extracted == before, "the worker lives on"
        assert (await grade("light")).category == 1, "a worker is ready sooner without numpy"
        assert (await grade("leads")).category == 1, "it has a process group of its own: no Ctrl-C ends it"


def test_what_numpy_gives_is_a_number_or_true_or_false() -> None:
    """What it compares, such as by `isclose`, is no `bool`, and could not be stored."""
    for number in (np.float64(0.75), np.float32(0.75), np.array(0.75)):
        marks = make_marks(number, "mine:grade")
        assert json.loads(json.dumps(marks.signals)) == {"is_correct": True, "score": 0.75}
    assert make_marks(np.True_, "mine:grade") == make_marks(True, "mine:grade")
    marks = make_marks({"is_correct": np.False_, "steps": np.int64(3)}, "mine:grade")
    assert json.loads(json.dumps(marks.signals)) == {"is_correct": False, "steps": 3.0}


@pytest.mark.parametrize("value", ["yes", "false", 0.7])
def test_is_correct_is_true_or_false(value: object) -> None:
    """The rubric would take any other value for wrong."""
    with pytest.raises(GraderError, match="mine:grade must return true or false for signal is_correct, but got "):
        make_marks({"is_correct": value}, "mine:grade")


@pytest.mark.slow
@pytest.mark.parametrize("deed", ["spin", "swallow"])
async def test_a_hung_worker_is_replaced_and_only_its_answer_is_lost(deed: str) -> None:
    async with pool(HANGING) as grade:
        before = (await grade("pid")).extracted
        texts = ["yes"] * 5 + [deed] + ["no"] * 5
        results = await asyncio.gather(*map(grade, texts), return_exceptions=True)
        assert [result.category for result in results if not isinstance(result, GraderError)] == [1] * 5 + [0] * 5
        errors = [str(result) for result in results if isinstance(result, GraderError)]
        assert errors == [f"the grader took longer than {HANGS:g} s"]
        assert (await grade("pid")).extracted != before


@pytest.mark.slow
async def test_a_worker_that_nothing_interrupts_is_killed_and_only_its_answer_is_lost(tmp_path: Path) -> None:
    holds = tmp_path / "holds"
    async with pool(HANGING) as grade:
        before = (await grade("pid")).extracted
        fine, held, others = (
            asyncio.gather(*map(grade, texts), return_exceptions=True)
            for texts in (["yes"] * 5, [f"hold {holds}"], ["no"] * 5)
        )
        assert [result.category for result in await fine] == [1] * 5
        for _ in range(3):  # it is put off where others wait, and then tried twice
            await until(holds.exists)
            holds.unlink()
            let_pass(HANGS + KILL_GRACE)
        assert [*map(str, await held)] == [f"the grader was silent for {HANGS + KILL_GRACE:g} s and was killed"]
        assert [result.category for result in await others] == [0] * 5
        assert (await grade("pid")).extracted != before


@pytest.mark.slow
@pytest.mark.parametrize(("deed", "tries"), [("count", 1), ("idle", 2)])
async def test_what_computes_too_long_is_tried_once_and_what_waits_twice(tmp_path: Path, deed: str, tries: int) -> None:
    """The one would compute as long again; the other may have waited for something that comes."""
    opened = GradingPool(HANGING, BINARY, WorkerSettings(LIMITS, HERE))
    trial = Trial(0, 0, 0, 0, GRADING, answer=said(f"{deed} {tmp_path / 'tries'}"))
    graded = await grade_answer(opened, trial, QUESTION, None)
    await opened.close()
    assert graded.has_failed and graded.details.error == f"the grader took longer than {HANGS:g} s"
    assert (tmp_path / "tries").read_text() == "tried\n" * tries


async def test_an_exception_of_a_function_is_tried_once_more(tmp_path: Path) -> None:
    async with pool(HANGING) as grade:
        assert (await grade(f"raise_once {tmp_path / 'marker'}")).category == 1


@pytest.mark.slow
async def test_time_without_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither in the worker, nor for the parent that waits for it."""
    held, in_line = tmp_path / "held", 0.0
    async with pool(HANGING) as grade:
        assert (await grade("starve")).category == 1
    monkeypatch.setattr(worker, "run_queue_seconds", lambda process: in_line)
    async with pool(HANGING) as grade:
        waiting = asyncio.create_task(grade(f"hold {held}"))
        await until(held.exists)
        in_line = 2 * HANGS
        let_pass(2 * HANGS)
        await asyncio.sleep(0.05)
        assert held.read_text() == "tried\n" and not waiting.done()
        waiting.cancel()


def test_only_the_keeper_which_has_no_threads_runs_code_between_fork_and_exec() -> None:
    sources = Path(worker.__file__).parents[1].rglob("*.py")
    assert [path.name for path in sources if "preexec_fn" in path.read_text()] == ["keeper.py"]


@pytest.mark.slow
async def test_memory_is_limited() -> None:
    async with pool(HANGING, memory=0.3) as grade:
        assert "used more than 0.3 GiB" in await refusal(grade, "eat")
        assert (await grade("yes")).category == 1


@pytest.mark.slow
async def test_a_crash_is_tried_again_before_it_is_an_error(tmp_path: Path) -> None:
    async with pool(HANGING) as grade:
        assert (await grade(f"die_once {tmp_path / 'died'}")).category == 1
        message = await refusal(grade, "crash")
        assert message.startswith("the grader died (exit status -")
        assert (await grade("yes")).category == 1


async def test_a_fork_that_returns_gives_no_marks() -> None:
    """Else its marks would be those of its answer, and the answer's own those of the next."""
    async with pool(HANGING) as grade:
        assert [(await grade(text)).category for text in ("fork", "no", "yes", "no")] == [1, 0, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_worker_that_dies_while_idle_costs_no_answer(loop: str) -> None:
    """Such as one that the system ends for want of memory."""

    async def grade_around_a_death() -> int:
        async with pool(HANGING) as grade:
            pid = int((await grade("pid")).extracted)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: pid not in {int(name.name) for name in Path("/proc").iterdir() if name.name.isdigit()})
            await asyncio.sleep(0)
            return int((await grade("yes")).category)

    assert pytest.importorskip(loop).run(grade_around_a_death()) == 1


async def test_a_grader_that_cannot_start_fails_every_answer_and_is_started_once(starts: list[Worker]) -> None:
    async with pool(Python(function="hanging:gone")) as grade:
        errors = await asyncio.gather(*(grade("yes") for _ in range(20)), return_exceptions=True)
        errors += await asyncio.gather(grade("no"), return_exceptions=True)
    assert all("cannot start: hanging:gone: module hanging has no attribute gone" in str(error) for error in errors)
    assert len(starts) == 1


async def test_catastrophic_patterns_are_stopped() -> None:
    for text, timeout in (("a" * 50, 0.2), ("ab", HANGS)):
        async with pool(Regex(pattern=r"(?:a+)+b"), Question("q", "?", "ab"), timeout=timeout) as grade:
            if text == "ab":
                assert (await grade(text)).category == 1
            else:
                message = await refusal(grade, text)  # by the worker, or for it where it got no processor to say so
                assert "took longer than 0.2 s" in message or "was silent for 2.2 s and was killed" in message


@pytest.mark.slow
async def test_expressions_are_compared_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    math, question = Math(), Question("q", "?", "x^2-1")
    monkeypatch.setattr(Math, "grade", lambda *_: pytest.fail("the event loop would stand still"))
    async with pool(math, question) as grade:
        right, wrong = await asyncio.gather(grade(r"\boxed{(x-1)(x+1)}"), grade(r"\boxed{(x-1)(x+2)}"))
    assert (right.category, wrong.category) == (1, 0) and right.signals["method"] == "expression"
    assert math.quick(r"\boxed{(x-1)(x+1)}", question) is None


@pytest.mark.slow
async def test_an_integral_that_takes_too_long_is_no_grade() -> None:
    async with pool(Math(), Question("q", "?", "x^2-7"), timeout=2.0) as grade:
        message = await refusal(grade, r"\boxed{\int_0^\infty e^{-x^2}\cos(x)\sin(x^3) dx}")
        assert "took longer than 2 s" in message or "was silent for 4 s and was killed" in message
        assert (await grade(r"\boxed{(x^2-7) \cdot 1}")).category == 1


@pytest.mark.parametrize("workers", [1, None])
async def test_a_loop_that_was_held_up_itself_blames_no_grader(starts: list[Worker], workers: int | None) -> None:
    """Nor does it take the answer for a slow one."""
    async with pool(HANGING, workers=workers) as grade:
        await grade("yes")
        waiting = asyncio.create_task(grade("yes"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (worker,) = starts
        pipe = worker._process._transport.get_pipe_transport(1).get_extra_info("pipe")  # type: ignore[attr-defined]
        assert select.select([pipe], [], [], HANGS)[0], "the reply lies in the pipe, and nobody takes it"
        let_pass(HANGS + KILL_GRACE)
        assert (await waiting).category == 1


async def test_closing_ends_the_processes_and_fails_what_waits(tmp_path: Path) -> None:
    opened, begun = GradingPool(HANGING, BINARY, WorkerSettings(LIMITS, HERE)), tmp_path / "begun"
    pid = int((await opened.grade(said("pid"), QUESTION)).extracted or "0")
    waiting = [asyncio.create_task(opened.grade(said(f"wait {begun}"), QUESTION)) for _ in range(3)]
    await until(begun.exists)
    await opened.close()
    for task in waiting:
        with pytest.raises(GraderError, match="was closed before it graded this answer"):
            await task
    with pytest.raises(GraderError, match="was closed"):
        await opened.grade(said("pid"), QUESTION)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
async def test_answers_that_take_long_hold_up_no_other(tmp_path: Path) -> None:
    held = [tmp_path / f"held_{number}" for number in range(3)]
    async with pool(HANGING, workers=None) as grade:
        stuck = [asyncio.create_task(grade(f"wait {path}")) for path in held]
        others = asyncio.gather(*map(grade, ["yes", "no"] * 20))
        assert [result.category for result in await others] == [1, 0] * 20
        for path in held:
            await until(path.exists)
        assert (await grade("yes")).category == 1 and not any(task.done() for task in stuck)
    for task in stuck:
        with pytest.raises(GraderError, match="was closed"):
            await task


async def test_closing_ends_a_worker_that_is_only_starting(starts: list[Worker], tmp_path: Path) -> None:
    opened = GradingPool(HANGING, BINARY, WorkerSettings(LIMITS, HERE))
    waiting = asyncio.create_task(opened.grade(said(f"wait {tmp_path / 'begun'}"), QUESTION))
    await until(lambda: bool(starts))
    await opened.close()
    with pytest.raises(GraderError, match="was closed"):
        await waiting
    assert [worker._process.returncode is None for worker in starts] == [False]


NAMES = "OPENAI_API_KEY HF_TOKEN AWS_SECRET_ACCESS_KEY DATABASE_PASSWORD MYVENDOR_APIKEY NAMED_BY_THE_CONFIGURATION"
KEYS = {**dict.fromkeys(NAMES.split(), "some-text"), "UNSUSPICIOUS": "sk-0123456789abcdef0123456789abcdef"}


@pytest.mark.slow
async def test_a_grader_runs_without_keys_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, "GRADER_TABLE": "kept", "MAX_TOKENS": "9"}.items():
        monkeypatch.setenv(name, value)
    grader = Python(function="asking:grade")
    opened = GradingPool(grader, BINARY, WorkerSettings(folder=HERE, keys=frozenset({"NAMED_BY_THE_CONFIGURATION"})))
    asked = said(" ".join([*KEYS, "GRADER_TABLE", "MAX_TOKENS"]))
    try:
        assert (await opened.grade(asked, QUESTION)).extracted == "GRADER_TABLE MAX_TOKENS"
    finally:
        await opened.close()
