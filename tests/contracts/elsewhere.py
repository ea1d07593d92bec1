"""The same function in another process: what goes by the order of a set of names, or by `hash`, differs there.

Python gives every process another seed for the hashes of texts, so that within one process nothing shows it. An export
is read in another process than it was written in.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from adaptive_eval.testing.runs import fail_unless

ASKED = """
import pickle, sys
sys.path[:] = pickle.loads(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))
said, sys.stdout = sys.stdout, sys.stderr  # where a plug-in may print
probe, arguments = pickle.loads(sys.stdin.buffer.read())
said.buffer.write(probe(*arguments).encode("utf-8", "surrogatepass"))
"""
"""Code of the other process: its paths are those of this one before anything is loaded."""
SEEDS = ("1", "2")
THERE = "ADAPTIVE_EVAL_ELSEWHERE"
"""The variable that is set in the other process: a module that calls a suite when it is loaded begins no third one."""


def told_elsewhere(probe: Callable[..., str], arguments: tuple[Any, ...]) -> str | None:
    """What the function says in a process with other hashes.

    None for what cannot be sent there, such as a function within a function.
    """
    if THERE in os.environ:
        return None
    try:
        sent = pickle.dumps((probe, arguments))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    if b"__main__" in sent:  # a script of the author's would run once more
        return None
    return _probe_elsewhere(sent, next(seed for seed in SEEDS if seed != os.environ.get("PYTHONHASHSEED")))


def check_elsewhere(probe: Callable[..., str], arguments: tuple[Any, ...], name: str) -> None:
    """Raise AssertionError where the function says something else in a process with other hashes."""
    remote = told_elsewhere(probe, arguments)
    if remote is None:
        return
    local = probe(*arguments)
    pairs = enumerate(zip(local, remote, strict=False))
    at = next((at for at, (expected, received) in pairs if expected != received), len(local))
    fail_unless(
        local == remote,
        f"{name} gives something else in another process, {_around(remote, at)} for {_around(local, at)}: it goes by "
        "the order of a set, or by `hash`, which differ from process to process; sort, or keep a list",
    )


def _around(text: str, at: int) -> str:
    return repr(text[max(at - 30, 0) : at + 30])


def _probe_elsewhere(sent: bytes, seed: str) -> str:
    paths = pickle.dumps(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        input=b"%d\n%b%b" % (len(paths), paths, sent),
        env={**os.environ, "PYTHONHASHSEED": seed, THERE: "1"},
        capture_output=True,
    )
    error = done.stderr.decode("utf-8", "replace").strip()[-300:]
    fail_unless(done.returncode == 0, f"what works here fails in another process: {error}")
    return done.stdout.decode("utf-8", "surrogatepass")
