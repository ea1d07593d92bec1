"""The displays of a run: a live view, plain lines for logs and pipes, JSON lines, or none."""

import asyncio
import math
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Literal, TextIO, cast

import orjson

from adaptive_eval.core.types import VERDICTS_OF_LOOKS, Look
from adaptive_eval.notes import Event
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.event_words import event_sentence
from adaptive_eval.report.finding import count_states
from adaptive_eval.report.lines import Scale, count, duration, safe_line
from adaptive_eval.report.status import Status
from adaptive_eval.running.watching import Display
from adaptive_eval.show.live import LiveDisplay, under_way
from adaptive_eval.show.summary import last_screen
from adaptive_eval.show.text import Rates, stopping_line


class JsonDisplay(Display):
    """Writes a record for every look and event, and one at the end."""

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._out = out or sys.stdout.buffer

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._models, self._take = models, take
        self._write({"record": "opened", "run": name})

    def looked(self, looks: Sequence[Look]) -> None:
        status = self._take()
        for look in looks:
            is_void = status.is_blocked and look is looks[-1]
            verdicts = status.verdicts if is_void else Counter(pair.verdict for pair in look.comparisons)
            self._write(
                {
                    "record": "look",
                    "look": look.index + 1,
                    "trials": sum(look.trials),
                    "verdicts": {str(verdict): verdicts[verdict] for verdict in VERDICTS_OF_LOOKS},
                    "models": [
                        {
                            "name": self._models[model],
                            "tier": look.tiers[model],
                            "score": look.scores[model],
                            "sigma": look.sigmas[model],
                        }
                        for model in look.order
                    ],
                    "elapsed": status.elapsed,
                }
            )

    def happened(self, event: Event) -> None:
        self._write({"record": "event", "kind": event.kind, **event.body()})

    def stopping(self, in_flight: int, at_most: float) -> None:
        limit = at_most if math.isfinite(at_most) else None
        self._write({"record": "stopping", "in_flight": in_flight, "at_most": limit})

    def ended(self, ended: Ended) -> None:
        self._write(
            {
                "record": "ended",
                "why": ended.why,
                "exit_code": ended.exit_code,
                "gate": {row.model: row.outcome for row in ended.gate},
                "directory": str(ended.directory),
                "resume": None if ended.arguments is None else shlex.join(["adaptive-eval", "run", *ended.arguments]),
                "trials": ended.status.used.spent.trials,
            }
        )

    def _write(self, record: dict[str, object]) -> None:
        self._out.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        self._out.flush()


MAX_SILENCE_SECONDS = 60.0
"""Silence after which a line reports the progress of the run."""
MIN_LOOK_SECONDS = 10.0
"""Time between two lines about looks that changed nothing."""


class PlainDisplay(Display):
    """Prints a line for each look and event."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._rates = Rates()
        self._timer: asyncio.TimerHandle | None = None
        self._printed_states = ""
        self._printed_states_at = 0.0

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._models, self._take = models, take
        self._print(f"{safe_line(name)}: running")
        if (promise := take().promise) is not None:
            self._print(f"promise: {promise}")
        self._start_timer(MAX_SILENCE_SECONDS)

    def looked(self, looks: Sequence[Look]) -> None:
        status = self._take()
        self._rates.add(status.elapsed, status.new_trials, status.new_tokens)
        eta = self._rates.eta(status.trials_to_go)
        remaining = "" if eta is None else f", about {duration(eta)} left"
        for look in looks[-1:] if status.gate else looks:
            of_report = status.gate or (status.is_blocked and look is looks[-1])  # an alarm lets no verdict stand
            states = status.states if of_report else count_states(pair.verdict for pair in look.comparisons)
            if not self._deserves_line(states):
                continue
            number, trials = look.index + 1, sum(look.trials)
            if of_report and status.results is not None:  # further looks may have been taken meanwhile
                number, trials = status.results.looks[-1].look, status.results.looks[-1].trials
            self._print(f"look {number}: {count(trials)} trials, {states}; {duration(status.elapsed)}{remaining}")

    def _deserves_line(self, states: str) -> bool:
        """Whether a look differs from the last printed one, or that was long ago; looks may be frequent."""
        if states == self._printed_states and time.monotonic() - self._printed_states_at < MIN_LOOK_SECONDS:
            return False
        self._printed_states, self._printed_states_at = states, time.monotonic()
        return True

    def happened(self, event: Event) -> None:
        if (sentence := event_sentence(event)) is not None:
            self._print(sentence)

    def stopping(self, in_flight: int, at_most: float) -> None:
        self._print(stopping_line(in_flight, at_most))

    def closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def ended(self, ended: Ended) -> None:
        self._print(last_screen(ended))

    def _start_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._break_silence)

    def _break_silence(self) -> None:
        silent = time.monotonic() - self._printed
        if silent >= MAX_SILENCE_SECONDS:
            status = self._take()
            self._rates.add(status.elapsed, status.new_trials, status.new_tokens)
            self._print(f"{pending_look(status)}; {duration(status.elapsed)}")
            silent = 0.0
        self._start_timer(MAX_SILENCE_SECONDS - silent)

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        print(line, file=self._out, flush=True)


def pending_look(status: Status) -> str:
    """Describe the progress of an incomplete look."""
    parts = [f"{count(status.used.spent.trials)} trials", *under_way(status)]
    return f"look {status.looks + 1} is not complete yet: {', '.join(parts)}"


class DispensableDisplay:
    """A display that may fail without ending the run: after an error nothing more is shown."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def __getattr__(self, name: str) -> Callable[..., None]:
        """A method of `Display`, called as long as the display works."""

        def show(*args: object) -> None:
            with self._hidden_after_error(goes_on=name != "ended"):
                getattr(self._display, name)(*args)

        return show

    @contextmanager
    def _hidden_after_error(self, *, goes_on: bool) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            broken, self._display = self._display, Display()
            with suppress(OSError):
                broken.closed()
            _redirect_to_null(sys.stdout)
            if not goes_on and isinstance(error, BrokenPipeError):
                return  # the reader has left, as `head` does
            message = f"nothing more is shown ({error.strerror}){'; the run goes on' if goes_on else ''}"
            with suppress(OSError):
                print(message, file=sys.stderr, flush=True)


def _redirect_to_null(stream: TextIO) -> None:
    """Redirect a stream to the null device, including its unwritten buffer."""
    null = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):  # a stream without a file, as in a test
        os.dup2(null, stream.fileno())
    os.close(null)


DisplayKind = Literal["rich", "plain", "json", "none"]


def open_display(kind: DisplayKind | None, weights: Sequence[float]) -> Display:
    """Open a display of this kind; by default the live view on a terminal, else plain lines."""
    makers: dict[str, Callable[[], Display]] = {
        "rich": lambda: LiveDisplay(Scale.of(weights)),
        "plain": PlainDisplay,
        "json": JsonDisplay,
        "none": Display,
    }
    return cast(Display, DispensableDisplay(makers[kind or ("rich" if sys.stdout.isatty() else "plain")]()))
