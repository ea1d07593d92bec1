"""A worker process for grading: what runs in it, and how the event loop starts it, sends, receives and ends it.

It grades what it is handed in its main thread, and lets nothing take too long or too much. It reads frames (a length of
four bytes, then a pickle) from its standard input: first the grader, then lists of tasks. For each task it writes one
frame: `TaskDone` or `TaskFailed`. Standard output belongs to the frames alone; what a grader prints goes to standard
error.

A periodic alarm raises `LimitExceeded`, which no `except Exception` swallows, when time or memory are used up; Python
code and long integer arithmetic see it at once. The kernel ends the process where C code never looks up (limits on CPU
time and on address space), and the parent kills one that waits for something else. Time in which a process was ready to
run and no processor was free does not count: on a busy machine an answer gets the same grade.
"""

import asyncio
import os
import pickle
import resource
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from adaptive_eval.endpoints.secrets import keyless
from adaptive_eval.errors import GraderError
from adaptive_eval.graders.types import GraderOptions, Marks
from adaptive_eval.questions.types import Question

LENGTH = 4
TICK = 0.1
GIB = 2**30
CPU_GRACE = 1
"""Seconds of CPU time, rounded down, after which the kernel ends a process whose alarm did not."""


class GradingTask(NamedTuple):
    """One answer to grade."""

    text: str
    question: Question


class TaskDone(NamedTuple):
    """A task was graded; also the reply to the setup, with no marks."""

    marks: Marks | None


class TaskFailed(NamedTuple):
    """A task could not be graded."""

    reason: str
    over: bool
    """The process has ended."""
    again: bool = False
    """It may not have been the task: what came before may have used up the memory, or the machine was busy."""


class LimitExceeded(BaseException):
    """Time or memory are used up."""

    def __init__(self, reason: str, again: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.again = reason, again


def run_queue_seconds(process: int | str = "self") -> float:
    """Seconds that a process has spent in line for a processor; 0 where the system does not tell."""
    try:
        with open(f"/proc/{process}/schedstat") as file:  # noqa: PTH123  (read ten times a second)
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class TaskLimits:
    """Limits of one task; the alarm looks every 0.1 s while a task is being graded."""

    def __init__(self, seconds: float, gib: float) -> None:
        self._seconds, self._gib = seconds, gib
        self._began, self._began_cpu = 0.0, 0.0
        self._watching = False
        signal.signal(signal.SIGALRM, self._tick)
        with suppress(ValueError, OSError):  # not every system limits address space
            ceiling = _memory().address_space + int(2 * gib * GIB)
            resource.setrlimit(resource.RLIMIT_AS, (ceiling, resource.RLIM_INFINITY))

    @contextmanager
    def limited_task(self) -> Iterator[None]:
        """The limits hold within this block."""
        self._began, self._began_cpu = time.monotonic() - run_queue_seconds(), time.process_time()
        cpu = int(self._began_cpu + self._seconds) + CPU_GRACE
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        self._watching = True
        signal.setitimer(signal.ITIMER_REAL, min(TICK, self._seconds), TICK)
        try:
            yield
        finally:
            # first the flag: an alarm that is already on its way would be raised outside of any block
            self._watching = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _tick(self, *_: object) -> None:
        if self._watching and time.monotonic() - run_queue_seconds() - self._began >= self._seconds:
            computed = time.process_time() - self._began_cpu >= self._seconds / 2
            raise LimitExceeded(took_longer(self._seconds), again=not computed)
        if self._watching and _memory().resident > self._gib * GIB:
            raise LimitExceeded(f"used more than {self._gib:g} GiB")


def took_longer(seconds: float) -> str:
    """The reason why there is no grade of an answer that has used up its time."""
    return f"took longer than {seconds:g} s"


class _Memory(NamedTuple):
    """Bytes in use."""

    address_space: int
    resident: int


def _memory() -> _Memory:
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123  (read ten times a second)
            pages = [int(field) for field in file.read().split()[:2]]
    except OSError:  # not Linux: the peak, in bytes
        return _Memory(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return _Memory(*(count * resource.getpagesize() for count in pages))


def read_frame(stream: BinaryIO) -> Any:
    """The next value; None at the end of the stream."""
    header = stream.read(LENGTH)
    if len(header) < LENGTH:
        return None
    return pickle.loads(stream.read(int.from_bytes(header, "big")))


def frame(value: object) -> bytes:
    """A value as it goes through a pipe."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(LENGTH, "big") + body


def grade(grader: GraderOptions, task: GradingTask, limits: TaskLimits) -> TaskDone | TaskFailed:
    """Grade one answer within the limits."""
    try:
        with limits.limited_task():
            return TaskDone(grader.grade(task.text, task.question))
    except LimitExceeded as error:
        return TaskFailed(error.reason, over=True, again=error.again)
    except MemoryError:
        return TaskFailed("ran out of memory", over=True, again=True)
    except GraderError as error:
        return TaskFailed(str(error), over=False)
    except Exception as error:  # whatever a grader raises is a failure of the grader, and never a wrong answer
        return TaskFailed(f"raised {type(error).__name__}: {error}"[:500], over=False)


def grade_until_closed(inbox: BinaryIO, outbox: BinaryIO) -> None:
    """Grade until the input ends, or until one task has used up a limit."""
    grader: GraderOptions | None = read_frame(inbox)
    if grader is None:
        return
    try:
        grader.warm_up()
    except Exception as error:
        outbox.write(frame(TaskFailed(f"cannot start: {error}", over=True)))
        return
    limits = TaskLimits(grader.timeout, grader.memory)
    outbox.write(frame(TaskDone(None)))
    while (tasks := read_frame(inbox)) is not None:
        for task in tasks:
            reply = grade(grader, task, limits)
            outbox.write(frame(reply))
            if isinstance(reply, TaskFailed) and reply.over:
                return


def main() -> None:
    """The process of a worker, from its beginning to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes the pipe when it is done
    outbox = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    with suppress(BrokenPipeError):
        grade_until_closed(sys.stdin.buffer, outbox)


BOOT = (
    "import os; os.setpgrp(); import sys; sys.path[:] = sys.argv[1:]; "
    "from adaptive_eval.graders.worker import main; main()"
)
"""The child imports what this process would, but not its main module, as `multiprocessing` does.

First it leaves the process group: a signal from the terminal is for the parent alone. In a session of its own it would
not give way: Linux shares processors out among sessions first. No code runs between fork and exec, where a lock that
another thread holds is never released.
"""
LATE = 0.2
"""Seconds that an answer may take through the event loop once it lies in the pipe."""
END_LIMIT = 2.0
GIVES_WAY = 10
"""Niceness beyond that of this process: a tenth of what another worker gets."""


class WorkerHung(Exception):
    """The worker said nothing for longer than it may."""


class WorkerDead(Exception):
    """The worker ended before it had answered."""

    def __init__(self, status: int) -> None:
        super().__init__(f"died (exit status {status})")
        self.out_of_time = status == -signal.SIGXCPU
        """It had used up its CPU time."""


def _import_paths() -> list[str]:
    """Import paths of this process, whatever folder the worker runs in."""
    return [str(Path(entry).absolute()) for entry in sys.path]


class Worker:
    """A process that grades."""

    def __init__(self, process: Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self.gives_way = False
        self._reading: asyncio.Future[TaskDone | TaskFailed] | None = None
        """The next reply, where somebody goes on waiting for it."""

    @classmethod
    async def start(cls, folder: Path, keys: Collection[str] = ()) -> "Worker":
        """Start a process in `folder`, where plug-ins are looked for first, without the variables that hold `keys`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", BOOT, *_import_paths()),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd=folder,
            env=keyless(os.environ, keys),
        )
        return cls(process)

    async def send(self, value: object) -> None:
        """Hand something over; whether it arrived, `receive` says."""
        with suppress(ConnectionError):
            self._stdin.write(frame(value))
            await self._stdin.drain()

    async def receive(self, limit: float, *, last: bool = True) -> TaskDone | TaskFailed:
        """The next reply, for which the worker has `limit` seconds; `last`: then it is not waited for any longer."""
        reading = self._reading = self._reading or asyncio.ensure_future(self._read())
        goes_on, end = False, self._clock() + limit
        try:
            while not reading.done() and (left := end - self._clock()) > 0.0:
                await asyncio.wait({reading}, timeout=left)
            if not reading.done() and last:
                # this loop may have been held up itself, and the reply be waiting in the pipe
                await asyncio.wait({reading}, timeout=LATE)
            if not reading.done():
                goes_on = not last
                raise WorkerHung
            return reading.result()
        except asyncio.IncompleteReadError:
            raise WorkerDead(await self._process.wait()) from None
        finally:
            if not goes_on:
                reading.cancel()
                self._reading = None

    def _clock(self) -> float:
        """Seconds without those that the worker spent in line for a processor."""
        return asyncio.get_running_loop().time() - run_queue_seconds(self._process.pid)

    async def _read(self) -> TaskDone | TaskFailed:
        length = int.from_bytes(await self._stdout.readexactly(LENGTH), "big")
        reply: TaskDone | TaskFailed = pickle.loads(await self._stdout.readexactly(length))
        return reply

    async def end(self) -> None:
        """Close its input, and kill it if that does not end it, or if nobody waits for that; it has ended then."""
        self._stdin.close()
        try:
            async with asyncio.timeout(END_LIMIT):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self.kill()
            if self._reading is not None:
                self._reading.cancel()
            await self._process.wait()

    def give_way(self) -> None:
        """Have the process go behind others where processors are scarce, from now on."""
        self.gives_way = True
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + GIVES_WAY)

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessLookupError):
            self._process.kill()
