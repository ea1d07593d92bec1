"""The worker process for grading, and its client in the event loop.

The worker grades in its main thread, with limits on time and memory. It reads pickles from standard input: first
grader and limits, then tasks. For each it writes one frame (four bytes of length, then a pickle): None when the grader
is ready, the marks, or `TaskFailed`. Standard output is only for frames; a grader's own output goes to standard error.

A periodic alarm raises `LimitExceeded` when time or memory is used up. No `except Exception` swallows it; Python code
and long integer arithmetic stop at once. The kernel ends C code that does not (limits on CPU time and address space),
and the parent kills a worker that hangs otherwise. Time spent waiting for a free processor does not count, so an answer
gets the same grade on a busy machine.
"""

import asyncio
import os
import pickle
import resource
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.imports import python_command
from adaptive_eval.endpoints.secrets import remove_keys
from adaptive_eval.graders.types import GraderOptions, GradingLimits, Marks, WorkerSettings
from adaptive_eval.questions.types import Question

HEADER_BYTES = 4
TICK_SECONDS = 0.1
GIB = 2**30
CPU_GRACE_SECONDS = 1
"""Seconds of CPU time after the limit until the kernel ends a process that the alarm did not stop."""


class GradingTask(NamedTuple):
    """One answer to grade."""

    text: str
    question: Question


class TaskFailed(NamedTuple):
    """Why a task could not be graded."""

    reason: str
    process_ended: bool
    """Whether the process has ended."""
    may_retry: bool = False
    """Whether to retry, since an earlier task or a busy machine may be the cause."""


TaskReply = Marks | TaskFailed | None
"""The reply to a task, or None after setup."""


class LimitExceeded(BaseException):
    """Time or memory is used up."""

    def __init__(self, reason: str, may_retry: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.may_retry = reason, may_retry


def run_queue_seconds(process: int | str = "self") -> float:
    """Seconds that a process has waited for a processor; 0 if the system does not report it."""
    try:
        with open(f"/proc/{process}/schedstat", "rb", buffering=0) as file:  # noqa: PTH123  (read ten times a second)
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class TaskLimits:
    """Limits of a task, checked by an alarm every 0.1 s."""

    def __init__(self, limits: GradingLimits) -> None:
        self._seconds, self._gib = limits.timeout, limits.memory
        self._began, self._began_cpu = 0.0, 0.0
        self._watching = False
        signal.signal(signal.SIGALRM, self._tick)
        with suppress(ValueError, OSError):  # not every system limits address space
            ceiling = _memory()[0] + int(2 * self._gib * GIB)
            resource.setrlimit(resource.RLIMIT_AS, (ceiling, resource.RLIM_INFINITY))

    @contextmanager
    def limited_task(self) -> Iterator[None]:
        """A context in which the limits apply."""
        self._began, self._began_cpu = time.monotonic() - run_queue_seconds(), time.process_time()
        cpu = int(self._began_cpu + self._seconds) + CPU_GRACE_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        self._watching = True
        signal.setitimer(signal.ITIMER_REAL, min(TICK_SECONDS, self._seconds), TICK_SECONDS)
        try:
            yield
        finally:
            # clear the flag first: a pending alarm would raise outside the block
            self._watching = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _tick(self, *_: object) -> None:
        if self._watching and time.monotonic() - run_queue_seconds() - self._began >= self._seconds:
            computed = time.process_time() - self._began_cpu >= self._seconds / 2
            raise LimitExceeded(timeout_reason(self._seconds), may_retry=not computed)
        if self._watching and _memory()[1] > self._gib * GIB:
            raise LimitExceeded(f"used more than {self._gib:g} GiB")


def timeout_reason(seconds: float) -> str:
    """The failure reason for an answer that used up its time."""
    return f"took longer than {seconds:g} s"


def _memory() -> tuple[int, int]:
    """Bytes of address space and of resident memory."""
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123  (read ten times a second)
            space, resident = (int(field) * resource.getpagesize() for field in file.read().split()[:2])
    except OSError:  # not Linux: the peak, in bytes
        return 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return space, resident


def frame(value: object) -> bytes:
    """Encode a value as a frame."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def grade(grader: GraderOptions, task: GradingTask, limits: TaskLimits) -> TaskReply:
    """Grade one answer within the limits."""
    try:
        with limits.limited_task():
            return grader.grade(task.text, task.question)
    except LimitExceeded as error:
        return TaskFailed(error.reason, process_ended=True, may_retry=error.may_retry)
    except MemoryError:
        return TaskFailed("ran out of memory", process_ended=True, may_retry=True)
    except GraderError as error:
        return TaskFailed(str(error), process_ended=False)
    except Exception as error:  # any exception is a grader error, never a wrong answer
        return TaskFailed(f"raised {type(error).__name__}: {error}"[:500], process_ended=False, may_retry=True)


def grade_until_closed(inbox: BinaryIO, outbox: BinaryIO) -> None:
    """Grade tasks until the input ends or a task exceeds a limit."""
    grader, limits_of_run = pickle.load(inbox)
    try:
        grader.warm_up()
    except Exception as error:
        outbox.write(frame(TaskFailed(f"cannot start: {error}", process_ended=True)))
        return
    limits, process = TaskLimits(limits_of_run), os.getpid()
    reply: TaskReply = None
    while not (isinstance(reply, TaskFailed) and reply.process_ended):
        outbox.write(frame(reply))
        reply = grade(grader, pickle.load(inbox), limits)
        if os.getpid() != process:  # the grader forked, and this is the child: only the parent may reply
            os._exit(1)
    outbox.write(frame(reply))


def main() -> None:
    """Entry point of the worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes the pipe at its end
    outbox = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    with suppress(BrokenPipeError, EOFError):  # the parent has closed its end
        grade_until_closed(sys.stdin.buffer, outbox)


BOOTSTRAP = (
    "import os; os.setpgrp(); import sys; sys.path[:] = sys.argv[1:]; "
    "from adaptive_eval.graders.worker import main; main()"
)
"""The child's code. It gets the import paths of this process but, unlike `multiprocessing`, not its main module.

It first leaves the process group, since terminal signals are for the parent. No code runs between fork and exec, where
locks of other threads are never released.
"""
READ_GRACE_SECONDS = 0.2
"""Seconds for the event loop to read a reply from the pipe."""
END_TIMEOUT = 2.0
"""Seconds for a worker to exit after its input is closed."""


class WorkerHung(Exception):
    """The worker was silent for too long."""


class WorkerDead(Exception):
    """The worker ended before it replied."""

    def __init__(self, status: int) -> None:
        super().__init__(f"died (exit status {status})")
        self.out_of_time = status == -signal.SIGXCPU
        """Whether it used up its CPU time."""


class Worker:
    """A worker process, seen from the event loop."""

    def __init__(self, process: Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._length = 0
        """Length of a reply whose body is not read yet; 0 if there is none."""

    @classmethod
    async def start(cls, settings: WorkerSettings) -> "Worker":
        """Start a process."""
        process = await asyncio.create_subprocess_exec(
            *python_command(BOOTSTRAP),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd=settings.folder,
            env=remove_keys(os.environ, settings.keys),
        )
        return cls(process)

    def send(self, value: object) -> None:
        """Send a value, without waiting for it to be read; `receive` reports failures."""
        with suppress(RuntimeError):  # of uvloop, if the worker has ended
            self._stdin.write(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))

    async def receive(self, limit: float) -> TaskReply:
        """Wait `limit` seconds for the next reply; after `WorkerHung`, the next call continues to wait for it."""
        end, remaining = self._clock() + limit, limit
        try:
            while remaining > 0.0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(remaining):
                        return await self._read()
                remaining = end - self._clock()
            # the loop may have been blocked while the reply was in the pipe
            async with asyncio.timeout(READ_GRACE_SECONDS):
                return await self._read()
        except TimeoutError:
            raise WorkerHung from None
        except asyncio.IncompleteReadError:
            raise WorkerDead(await self._process.wait()) from None

    def _clock(self) -> float:
        """The time in seconds, excluding the worker's waits for a processor."""
        return asyncio.get_running_loop().time() - run_queue_seconds(self._process.pid)

    async def _read(self) -> TaskReply:
        self._length = self._length or int.from_bytes(await self._stdout.readexactly(HEADER_BYTES), "big")
        body = await self._stdout.readexactly(self._length)
        self._length = 0
        reply: TaskReply = pickle.loads(body)
        return reply

    async def end(self) -> None:
        """Close its input and wait until it has exited; kill it after a timeout, or if the wait is cancelled."""
        self._stdin.close()
        try:
            async with asyncio.timeout(END_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            self._process.kill()
