"""Grader functions that misbehave, each in its own way; the answer says how."""

import atexit
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from adaptive_eval.graders import worker
from adaptive_eval.questions.types import Question


def grade(text: str, question: Question) -> object:
    """Do what the text says."""
    deed, _, argument = text.partition(" ")
    return DEEDS[deed](argument)


def _let_the_limit_pass(*, computing: bool = False, in_line: bool = False) -> None:
    """A day goes by on the clock of this worker, so that a limit of minutes is over at once."""
    now, cpu = time.monotonic(), time.process_time()
    time.monotonic = lambda: now + 86_400.0
    if computing:
        time.process_time = lambda: cpu + 86_400.0
    if in_line:
        worker.run_queue_seconds = lambda: 86_400.0


def _spin(_: str) -> NoReturn:
    _let_the_limit_pass(computing=True)
    while True:
        pass


def _count(path: str) -> NoReturn:
    """Leave a trace of every attempt, then compute for a day."""
    _leave_trace(path)
    _spin(path)


def _idle(path: str) -> NoReturn:
    """Leave a trace of every attempt, then wait for a day."""
    _leave_trace(path)
    _swallow(path)


def _starve(_: str) -> bool:
    """Stand in line for a processor for a day."""
    _let_the_limit_pass(in_line=True)
    begun = time.perf_counter()
    while time.perf_counter() - begun < 3 * worker.TICK_SECONDS:
        pass
    return True


def _leave_trace(path: str) -> None:
    with Path(path).open("a") as file:
        file.write("tried\n")


def _swallow(_: str) -> NoReturn:
    _let_the_limit_pass()
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            continue


def _wait(path: str) -> NoReturn:
    """Leave a trace of every attempt, then hang within the limit."""
    _leave_trace(path)
    while True:
        time.sleep(1000)


def _hold(path: str) -> NoReturn:
    """Sleep in C with the alarm blocked: only the parent can end this."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    _wait(path)


def _eat(_: str) -> bool:
    eaten = []
    while True:
        eaten.append(bytearray(16_000_000))


def _crash(_: str) -> bool:
    ctypes.string_at(0)
    return True


def _is_first(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _die_once(marker: str) -> bool:
    if _is_first(marker):
        os._exit(9)
    return True


def _fork(_: str) -> bool:
    """Return twice, once in a process that the pool knows nothing of."""
    if child := os.fork():
        os.waitpid(child, 0)
    return bool(child)


def _at_exit(path: str) -> bool:
    atexit.register(Path(path).touch)
    return True


def _print(text: str) -> bool:
    print(text * 1000)
    sys.stdout.flush()
    os.write(1, b"\x00" * 100)
    return True


def _raise(text: str) -> bool:
    raise KeyError(text)


def _raise_once(marker: str) -> bool:
    if _is_first(marker):
        raise OSError("not yet")
    return True


DEEDS = {
    "spin": _spin,
    "count": _count,
    "idle": _idle,
    "starve": _starve,
    "leads": lambda _: os.getpgrp() == os.getpid(),
    "swallow": _swallow,
    "wait": _wait,
    "hold": _hold,
    "eat": _eat,
    "crash": _crash,
    "die_once": _die_once,
    "fork": _fork,
    "at_exit": _at_exit,
    "print": _print,
    "raise": _raise,
    "raise_once": _raise_once,
    "light": lambda _: "numpy" not in sys.modules,
    "yes": lambda _: True,
    "no": lambda _: False,
    "half": lambda _: 0.5,
    "less": lambda _: 0.4,
    "nan": lambda _: float("nan"),
    "nothing": lambda _: None,
    "odd": lambda _: {"is_correct": True, "thing": object()},
    "signals": lambda _: {"is_correct": True, "style": "dry", "length": 3, "extracted": 42},
    "folder": lambda _: {"is_correct": True, "extracted": str(Path.cwd())},
    "pid": lambda _: {"is_correct": True, "extracted": os.getpid()},
}
