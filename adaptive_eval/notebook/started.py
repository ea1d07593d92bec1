"""Starting a run from Python.

A run gets its own thread and event loop, so it works with or without a running loop, for example in a notebook. Ctrl-C
reaches the waiting thread and is forwarded: once to wait for requests in flight, twice to stop at once. Then
`KeyboardInterrupt` is raised, so that no later cell continues as if the run were finished.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.load import config_from_mapping, load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.notebook.stored import RunRecord, read_run
from adaptive_eval.running.chosen import choose_run
from adaptive_eval.running.event_loop import run_to_end
from adaptive_eval.running.interrupts import MAX_REQUESTS
from adaptive_eval.running.start import execute
from adaptive_eval.show.displays import DisplayKind, open_display

Configuration = str | Path | Mapping[str, object] | RunConfig


def run(
    config: Configuration,
    overrides: Sequence[str] = (),
    *,
    directory: str | Path | None = None,
    fresh: bool = False,
    ask_again: bool = False,
    display: DisplayKind | None = None,
) -> RunRecord:
    """Rank the models of a configuration, and wait for the end; the same call again resumes the run.

    Args:
        config: A YAML file, a mapping written as in such a file (functions may stand for their `module:name`), or a
            `RunConfig`.
        overrides: Settings over those of the file or mapping, such as `"trials.max=40"`.
        directory: Directory of the run; default: `store` and the run's name.
        fresh: Start a new run next to the existing one; nothing is deleted.
        ask_again: After an alarm about a server, or answers that repeat, discard its model's answers since then, and
            request them again.
        display: rich, plain, json or none; default: rich on a terminal, else plain lines.

    Returns:
        The run as stored at its end.

    Raises:
        AdaptiveEvalError: The configuration, the run's directory or the servers cannot be used.
        KeyboardInterrupt: Ctrl-C, after the run has stopped; every answer that was graded is stored.

    Example:
        A run without your own server, with at most eight trials per question:

            record = adaptive_eval.run("configs/quickstart.yaml", ["trials.max=8"])
            print(record.ranking[["name", "tier", "score"]])
    """

    async def work(stops: StopRequests) -> RunRecord:
        run_directory = None if directory is None else Path(directory)
        may_override = not isinstance(config, RunConfig)
        load = partial(_load_configuration, config)
        prepared, directory_used, _ = choose_run(load, overrides, run_directory, fresh, may_override=may_override)
        run_display = open_display(display, prepared.rubric.weights)
        await execute(prepared, directory_used, run_display, stops, ask_again=ask_again)
        return read_run(directory_used)

    return _wait_for(work)


class StopRequests:
    """Requests to stop from other threads: handled from `hear` to the end of the context."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._handle: Callable[[], None] | None = None
        self._ready = Event()

    def begin(self) -> None:
        """Register the current task as the one to stop."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._ready.set()

    def stop(self) -> None:
        """Stop the run: first in order, then at once; can be called in any thread."""
        self._ready.wait()
        with suppress(RuntimeError):  # the loop is closed: there is nothing to stop
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._handle is not None:
            self._handle()
        elif self._task is not None:
            self._task.cancel()  # no request has been sent yet

    def listen(self, handle: Callable[[], None]) -> None:
        """Call `handle` at each request to stop from now on."""
        self._handle = handle

    def __enter__(self) -> "StopRequests":
        return self

    def __exit__(self, *_: object) -> None:
        self._handle = self._task = None


Work = Callable[[StopRequests], Coroutine[Any, Any, RunRecord]]


def _wait_for(work: Work) -> RunRecord:
    """Do the work in its own thread, and block until it has ended."""
    stops, future = StopRequests(), Future[RunRecord]()

    async def main() -> RunRecord:
        stops.begin()
        return await work(stops)

    def run_in_thread() -> None:
        try:
            future.set_result(run_to_end(main()))
        except BaseException as error:  # raised again in the waiting thread
            future.set_exception(error)

    Thread(target=run_in_thread, name="adaptive-eval", daemon=True).start()
    interrupted = 0
    while True:
        try:
            record = future.result()
            break
        except KeyboardInterrupt:
            interrupted += 1
            if interrupted > MAX_REQUESTS:
                raise
            stops.stop()
        except asyncio.CancelledError:
            break
    if interrupted:
        raise KeyboardInterrupt
    return record


def _load_configuration(config: Configuration, overrides: Sequence[str]) -> RunConfig:
    if isinstance(config, RunConfig):
        if overrides:
            raise ConfigError("overrides are for a file or a mapping; a RunConfig is complete: change it itself")
        return config
    if isinstance(config, Mapping):
        return config_from_mapping(config, overrides)
    return load_config(Path(config), overrides)
