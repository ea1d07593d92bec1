"""Telling somebody, by a command, of what has happened to a run.

The command gets a small JSON on its standard input. It is run by a thread of its own, one time after another, so that
the run never waits for it but a little while at its end; and one that fails is a warning, nothing else.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import Literal

from adaptive_eval.base.errors import AdaptiveEvalError, first_line
from adaptive_eval.config.run import NotifyConfig, RunConfig
from adaptive_eval.endpoints.secrets import remove_keys
from adaptive_eval.record.ending import Ended
from adaptive_eval.record.status import Status
from adaptive_eval.running.watching import Watcher
from adaptive_eval.store import (
    AlarmRaised,
    Event,
    ModelSetAside,
    ModelSettled,
    OnlyFailures,
    ServerDied,
    ServersAwaited,
    ServersNoticed,
    SiteLost,
)

Body = Mapping[str, object]
When = Literal["end", "alarm", "done"]

COMMAND_SECONDS = 30.0
AT_THE_END = 45.0
"""Seconds that a run that has ended waits for what is being sent."""


def open_notifier(config: RunConfig) -> "Notifier | None":
    """Open the notifier of a run if its configuration asks for one."""
    return None if config.notify is None else Notifier(config.name, config.notify, Sender(config, config.notify))


class Sender:
    """Gives the command what it is given, in a thread of its own."""

    def __init__(self, config: RunConfig, notify: NotifyConfig) -> None:
        self._command, self._folder = notify.command, config.folder
        self._environment = remove_keys(os.environ, config.keys)
        self._queue: SimpleQueue[Body | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="notify", daemon=True)  # a command that hangs holds nothing up
        self._thread.start()

    def send(self, body: Body) -> None:
        """Send this when everything before it has been sent."""
        self._queue.put(body)

    def close(self) -> None:
        """Wait until everything is sent, or too much time has passed."""
        self._queue.put(None)
        self._thread.join(AT_THE_END)

    def _work(self) -> None:
        while (body := self._queue.get()) is not None:
            if (problem := self._run(json.dumps(body).encode())) is not None:
                print(f"warning: notify: {problem}; the run goes on without it", file=sys.stderr, flush=True)

    def _run(self, data: bytes) -> str | None:
        """Run the command, and say what was wrong with it; the text of an error may have its arguments."""
        nothing = subprocess.DEVNULL
        try:
            done = subprocess.run(
                self._command,
                input=data,
                stdout=nothing,
                stderr=nothing,
                cwd=self._folder,
                env=self._environment,
                timeout=COMMAND_SECONDS,
                start_new_session=True,  # Ctrl-C is for the run
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the command could not be run to its end ({type(error).__name__})"
        return f"the command has ended with exit code {done.returncode}" if done.returncode else None


class Notifier(Watcher):
    """Watches a run, and has it told when something has happened that somebody asked for."""

    def __init__(self, name: str, notify: NotifyConfig, sender: Sender) -> None:
        self._name, self._on, self._sender = name, notify.on, sender
        self._status: Status | None = None
        self._raised: set[tuple[str, str]] = set()

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._take = take

    def happened(self, event: Event) -> None:
        told = _alarm(event)
        if told is not None and "alarm" in self._on and (key := (event.kind, told[0])) not in self._raised:
            self._raised.add(key)  # once a model: a server that dies again and again would fill a mailbox
            self._tell("alarm", "running", f"{told[0]}: {told[1]}", self._take())
        if isinstance(event, ModelSettled) and not event.launched:
            reason = f"{event.model} is done: its server can be stopped"
            self._tell("done", "running", reason, self._take(), event.model)

    def closed(self) -> None:
        self._status = self._take()

    def ended(self, ended: Ended) -> None:
        """The run has ended, well or because the user has stopped it."""
        finished = ended.reason is not None and ended.reason.ends(ended.status.trials)
        last = replace(ended.status, results=ended.results)  # with what was asked ahead
        self._tell("end", "finished" if finished else "stopped", ended.why, last)

    def failed(self, error: Exception) -> None:
        """An error has ended it; of one that was not foreseen nobody knows what its text holds."""
        foreseen = isinstance(error, AdaptiveEvalError)
        text = first_line(str(error)) if foreseen else f"an error that was not foreseen ({type(error).__name__})"
        self._tell("end", "stopped", f"Stopped by an error: {text}", self._status)

    def close(self) -> None:
        """Wait for what is being sent."""
        self._sender.close()

    def _tell(self, event: When, status: str, reason: str, seen: Status | None, model: str | None = None) -> None:
        if event not in self._on:
            return
        leaders = [] if seen is None or seen.gate else [one.row for one in seen.standings if one.row.tier == 1]
        found = f" {seen.finding[0]}" if seen is not None and leaders and seen.finding else ""
        self._sender.send(
            {
                "name": self._name,
                "event": event,
                **({} if model is None else {"model": model}),
                "status": status,
                "reason": reason,
                "leaders": [{"name": one.name, "score": one.score, "lo": one.lo, "hi": one.hi} for one in leaders],
                "trials": 0 if seen is None else seen.trials,
                "text": f"{self._name}: {reason.rstrip('.')}.{found}",
            }
        )


def _alarm(event: Event) -> tuple[str, str] | None:
    """The model that an alarm is about, and what it says; None where the event is none."""
    match event:
        case AlarmRaised():
            return event.model, event.text
        case ModelSetAside():
            return event.model, f"set aside: {first_line(event.reason)}"
        case ServersNoticed() if event.model:
            return event.model, event.text
        case ServerDied():
            return event.model, "its server has died, and is started again"
        case SiteLost():
            return event.model, f"{event.on} on {event.node} is lost, and placed anew"
        case ServersAwaited():
            return event.model, f"the run has waited {event.seconds} s for its server, and none is on its way"
        case OnlyFailures():
            last = "" if event.last is None else f"; the last one: {first_line(event.last)}"
            return event.model, f"nothing but failures for {event.seconds} s{last}"
        case _:
            return None
