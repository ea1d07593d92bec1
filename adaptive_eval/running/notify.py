"""Telling somebody of what has happened to a run: by a command, or by a POST to a webhook.

Both get the same small JSON, the command on standard input. They are sent by a thread of their own, one after another,
so that the run never waits for them but a little while at its end; and one that fails is a warning, nothing else.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import Literal

import httpx2

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.run import NotifyConfig, RunConfig
from adaptive_eval.endpoints.secrets import keyless
from adaptive_eval.errors import AdaptiveEvalError, ConfigError, first_line
from adaptive_eval.record.ending import Ended
from adaptive_eval.record.status import Standing, Status
from adaptive_eval.running.watching import IdleWatcher
from adaptive_eval.store import (
    AlarmRaised,
    Event,
    ModelSetAside,
    ModelSettled,
    OnlyFailures,
    ServerDied,
    ServersNoticed,
    SiteLost,
)

Body = Mapping[str, object]
When = Literal["end", "stall", "alarm", "done"]

WEBHOOK_SECONDS = 10.0
COMMAND_SECONDS = 30.0
AT_THE_END = 45.0
"""Seconds that a run that has ended waits for what is being sent."""
LONGEST_BETWEEN = 60.0
"""Seconds between two questions whether anything has come."""


def open_notifier(config: RunConfig) -> "Notifier | None":
    """Open the notifier of a run if its configuration asks for one; raises `ConfigError` if its address is not set."""
    if config.notify is None:
        return None
    environment = read_environment(config.folder)
    return Notifier(config.name, config.notify, Sender(config, config.notify, environment))


class Sender:
    """Sends what it is given, in a thread of its own."""

    def __init__(self, config: RunConfig, notify: NotifyConfig, environment: Mapping[str, str]) -> None:
        self._url, self._command, self._folder = _address(notify, environment), notify.command, config.folder
        self._environment = keyless(os.environ, config.keys | {notify.webhook_env or ""})
        self._queue: SimpleQueue[Body | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="notify", daemon=True)  # a webhook that hangs holds nothing up
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
            data = json.dumps(body).encode()
            for problem in (*self._run(data), *self._post(data)):
                print(f"warning: notify: {problem}; the run goes on without it", file=sys.stderr, flush=True)

    def _run(self, data: bytes) -> Iterator[str]:
        if self._command is None:
            return
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
            yield f"the command could not be run to its end ({type(error).__name__})"
            return
        if done.returncode:
            yield f"the command has ended with exit code {done.returncode}"

    def _post(self, data: bytes) -> Iterator[str]:
        if self._url is None:
            return
        headers = {"Content-Type": "application/json"}
        try:
            with (
                httpx2.Client(follow_redirects=False, timeout=WEBHOOK_SECONDS) as client,
                client.stream("POST", self._url, content=data, headers=headers) as response,
            ):
                code = response.status_code
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:  # whose text may have the address
            yield f"the webhook could not be reached ({type(error).__name__})"
            return
        if not 200 <= code < 300:
            yield f"the webhook has answered with status {code}" + (
                ", and no redirect is followed" * (code // 100 == 3)
            )


def _address(notify: NotifyConfig, environment: Mapping[str, str]) -> str | None:
    if notify.webhook_env is None:
        return notify.webhook
    if url := environment.get(notify.webhook_env, "").strip():
        return url
    raise ConfigError(
        f"notify.webhook_env names the environment variable {notify.webhook_env}, which is not set; set it to the URL, "
        "or leave notify out"
    )


class Notifier(IdleWatcher):
    """Watches a run, and has it told when something has happened that somebody asked for."""

    def __init__(self, name: str, notify: NotifyConfig, sender: Sender) -> None:
        self._name, self._on, self._sender = name, notify.on, sender
        self._patience = notify.stalled_after
        self._status: Status | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._raised: set[tuple[str, str]] = set()
        self._stalled = False

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._since, self._trials = self._loop.time(), take().trials
        if "stall" in self._on:
            self._later()

    def happened(self, event: Event) -> None:
        told = _alarm(event)
        if told is not None and "alarm" in self._on and (key := (event.kind, told[0])) not in self._raised:
            self._raised.add(key)  # once a model: a server that dies again and again would fill a mailbox
            self._tell("alarm", "running", f"{told[0]}: {told[1]}", self._take())
        if isinstance(event, ModelSettled) and not event.launched:
            reason = f"{event.model} is done: its server can be stopped"
            self._tell("done", "running", reason, self._take(), event.model)

    def closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._status = self._take()

    def ended(self, ended: Ended) -> None:
        """The run has ended, well or because the user has stopped it."""
        finished = ended.reason is not None and ended.reason.ends(ended.status.trials)
        last = tuple(map(Standing, ended.results.models if ended.results else ()))  # with what was asked ahead
        self._tell("end", "finished" if finished else "stopped", ended.why, replace(ended.status, standings=last))

    def failed(self, error: Exception) -> None:
        """An error has ended it; of one that was not foreseen nobody knows what its text holds."""
        foreseen = isinstance(error, AdaptiveEvalError)
        text = first_line(str(error)) if foreseen else f"an error that was not foreseen ({type(error).__name__})"
        self._tell("end", "stopped", f"Stopped by an error: {text}", self._status)

    def close(self) -> None:
        """Wait for what is being sent."""
        self._sender.close()

    def _later(self) -> None:
        self._timer = self._loop.call_later(min(self._patience / 4.0, LONGEST_BETWEEN), self._look_after)

    def _look_after(self) -> None:
        """Whether anything has come since."""
        status, now = self._take(), self._loop.time()
        if status.trials != self._trials or status.batches:  # a batch may take its day
            self._trials, self._since, self._stalled = status.trials, now, False
        elif not self._stalled and now - self._since >= self._patience:
            self._stalled = True
            self._tell("stall", "running", f"no answer has come for {now - self._since:.0f} s", status)
        self._later()

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
        case OnlyFailures():
            last = "" if event.last is None else f"; the last one: {first_line(event.last)}"
            return event.model, f"nothing but failures for {event.seconds} s{last}"
        case _:
            return None
