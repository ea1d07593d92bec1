"""Processes of Inspect that begin at once: forked from one that has loaded it already.

To load it takes two seconds of the processor, and what it loads with its first task one or two more; a run starts two
such processes or more. What they do, and how they end, is as ever; a test of the plainest task starts Python itself.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

VARIABLE = "WARM_INSPECT"
"""The address of the one that has loaded it, for all who are started here."""
CALL = "import sys; sys.path[:] = sys.argv[1:]; from warm_inspect import {0}; {0}()"
BOOT = CALL.format("ask")
"""In place of that of `adaptive_eval.inspect.process`."""
WITH_A_TASK = (
    *("inspect_ai._control.scoring", "inspect_ai.agent._acp.server", "inspect_ai.agent._acp.transport_live"),
    *("inspect_ai.model._providers.openai_compatible", "inspect_ai._display.rich.display"),
    *("anyio._backends._asyncio", "jsonschema", "numpy", "rich.markdown"),
)
"""Modules that the first task loads; another version may have others."""


@contextmanager
def loaded() -> Iterator[str]:
    """Load it once; the address at which it can be had."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address := f"{folder}/inspect")
        listener.listen(64)
        paths = [str(Path(entry).absolute()) for entry in sys.path]
        with subprocess.Popen([sys.executable, "-c", CALL.format("serve"), *paths], stdin=listener) as server:
            yield address
            server.kill()


def fork_from(address: str, monkeypatch: "pytest.MonkeyPatch") -> None:
    """From now on processes of Inspect are forked there."""
    from adaptive_eval.inspect import process

    monkeypatch.setenv(VARIABLE, address)
    monkeypatch.setattr(process, "BOOTSTRAP", BOOT)


def ask() -> None:
    """In the process that a run has started: another one has its files, and this one ends as that does."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(os.environ[VARIABLE])
        files = [0, 1, 2, *filter(_is_passed_on, range(3, 64))]
        request = {"paths": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
        body = json.dumps(request).encode()
        socket.send_fds(asked, [len(body).to_bytes(4, "big")], files)
        asked.sendall(body)
        _let_go(files)
        code = int(asked.makefile().read() or -signal.SIGKILL)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve() -> None:
    """In the one that has loaded it: fork for each who asks, and once more for whoever waits for that fork's end."""
    from inspect_ai.model import get_model_info

    from adaptive_eval.inspect.worker import main

    for name in WITH_A_TASK:
        with suppress(ImportError):
            import_module(name)
    get_model_info("openai/gpt-4o")  # reads what is known of all models
    gc.freeze()
    listener = socket.socket(fileno=os.dup(0))
    while True:
        asked = listener.accept()[0]
        if os.fork() == 0:
            break
        asked.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    listener.close()
    with asked:
        size, files, _, _ = socket.recv_fds(asked, 4, 64)
        request = json.loads(asked.makefile("rb").read(int.from_bytes(size, "big")))
        if forked := os.fork():
            _let_go(files)
            asked.sendall(str(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])).encode())
            os._exit(0)
    os.setsid()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    tempfile.tempdir = None  # others may be meant by this environment
    sys.argv[1:] = sys.path[:] = request["paths"]
    main()


def _is_passed_on(file: int) -> bool:
    try:
        return os.get_inheritable(file)
    except OSError:
        return False


def _let_go(files: list[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in files:
        os.dup2(nothing, file)
