"""One line a look, for logs and pipes, and one a minute where nothing else happens."""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from adaptive_eval.core.types import Look
from adaptive_eval.display.events import sentence
from adaptive_eval.display.rates import Rates
from adaptive_eval.display.summary import summary
from adaptive_eval.display.text import count, duration, safe, verdict_counts
from adaptive_eval.run.ending import Ended
from adaptive_eval.run.status import Status
from adaptive_eval.store import Event

SILENCE_SECONDS = 60.0
"""After so long without a line comes one that says where the run stands."""


class PlainDisplay:
    """Prints lines as things happen."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._rates = Rates()
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._models, self._take = models, take
        self._print(f"{safe(name)}: running")
        self._listen(SILENCE_SECONDS)

    def looked(self, looks: Sequence[Look]) -> None:
        status = self._take()
        self._rates.add(status.elapsed, status.new_trials, status.new_tokens)
        eta = self._rates.eta(status.trials_to_go)
        left = "" if eta is None else f", about {duration(eta)} left"
        for look in looks:
            leader = safe(self._models[look.order[0]], 40)
            self._print(
                f"look {look.index + 1}: {count(sum(look.trials))} trials, {verdict_counts(look)}; first {leader}; "
                f"{duration(status.elapsed)}{left}"
            )

    def happened(self, event: Event) -> None:
        if (told := sentence(event)) is not None:
            self._print(told)

    def stopping(self, in_flight: int) -> None:
        self._print(f"stopping: waiting for {in_flight} requests in flight; interrupt again to stop at once")

    def closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def ended(self, ended: Ended, command: str) -> None:
        self._print(summary(ended, command))

    def _listen(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._break_silence)

    def _break_silence(self) -> None:
        silent = time.monotonic() - self._printed
        if silent >= SILENCE_SECONDS:
            status = self._take()
            self._rates.add(status.elapsed, status.new_trials, status.new_tokens)
            self._print(f"{pending(status)}; {duration(status.elapsed)}")
            silent = 0.0
        self._listen(SILENCE_SECONDS - silent)

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        print(line, file=self._out, flush=True)


def pending(status: Status) -> str:
    """What is being waited for."""
    now, parts = status.traffic, [f"{count(status.trials)} trials"]
    parts += [f"{count(now.in_flight)} in flight"] if now.in_flight is not None else []
    parts += [f"{count(now.retries)} retries", f"{count(now.errors)} errors"] if now.errors else []
    down = now.replicas - now.healthy_replicas
    parts += [f"{down} of {now.replicas} replicas down"] if down else []
    return f"look {status.looks + 1} is not complete yet: {', '.join(parts)}"
