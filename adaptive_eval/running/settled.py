"""The command `servers.on_done`: run once for a model whose servers somebody else has started, and may end now.

No shell reads it, it sees no key, and its time is bounded. Whatever becomes of it is an event and hurts nothing. Where
a run was killed, or stopped at once, before the command had ended, the next start runs it once more.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from adaptive_eval.config.run import DoneCommand, RunConfig
from adaptive_eval.endpoints.secrets import keyless
from adaptive_eval.store import Event, ModelSettled, SettingsChanged, SettledCommandEnded

MODEL_VARIABLE = "ADAPTIVE_EVAL_MODEL"
PLACEHOLDER = "{model}"


class SettledCommands:
    """Runs the command for each settled model, if the configuration has one."""

    def __init__(self, config: RunConfig, tell: Callable[[Event], None]) -> None:
        self._config, self._tell = config, tell
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, known: Sequence[Event]) -> None:
        """Run what an earlier start has left; `known` are all events so far."""
        changed = max((at for at, event in enumerate(known) if isinstance(event, SettingsChanged)), default=0)
        left = {event.model: event for event in known[changed:] if isinstance(event, ModelSettled)}
        for event in known[changed:]:
            if isinstance(event, SettledCommandEnded):
                left.pop(event.model, None)
        for event in left.values():
            self.hear(event)

    def hear(self, event: Event) -> None:
        """Run the command if a model is settled."""
        section = self._config.servers.on_done
        if section is None or not isinstance(event, ModelSettled) or event.launched:
            return
        task = asyncio.create_task(self._run(section, event.model))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def hurry(self) -> None:
        """Kill those that run: the next start runs them once more."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Wait for those that run, each for as long as it may take."""
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _run(self, section: DoneCommand, model: str) -> None:
        words = [word.replace(PLACEHOLDER, model) for word in section.command]
        notify = self._config.notify
        hidden = self._config.keys | {"" if notify is None else notify.webhook_env or ""}
        nothing = asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                cwd=self._config.folder,
                env={**keyless(os.environ, hidden), MODEL_VARIABLE: model},
                start_new_session=True,  # Ctrl-C is for the run
            )
        except (OSError, ValueError) as error:
            self._tell(SettledCommandEnded(model, f"it could not be started ({error})"))
            return
        self._tell(SettledCommandEnded(model, await _wait_for_end(process, section.timeout)))


async def _wait_for_end(process: asyncio.subprocess.Process, seconds: float) -> str | None:
    """Wait for the command; returns what went wrong. What it leaves behind is killed when its time is over."""
    try:
        async with asyncio.timeout(seconds):
            code = await process.wait()
    except TimeoutError:
        return f"it took longer than {seconds:g} s, and was killed"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return f"it has ended with exit code {code}" if code else None
