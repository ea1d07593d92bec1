"""The live view: the current ranking, drawn four times a second.

The status is taken in the event loop, and rich's thread draws the latest one: a slow or paused terminal (Ctrl-S) never
delays the run.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from textwrap import shorten

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from adaptive_eval.core.types import Verdict
from adaptive_eval.notes import Event
from adaptive_eval.report.costs import further_costs
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.event_words import event_sentence
from adaptive_eval.report.finding import has_tiers
from adaptive_eval.report.lines import Scale, count, duration, safe_line
from adaptive_eval.report.status import Cap, Standing, Status
from adaptive_eval.running.watching import Display
from adaptive_eval.show.ranking import ranking_text
from adaptive_eval.show.summary import last_screen, pending_in_short
from adaptive_eval.show.text import Rates, number_or_dash, stopping_line

REFRESH_SECONDS = 0.25
SHOWN_EVENTS = 3
SHOWN_FINDINGS = 2
"""Sentences of the finding: alarms first, then one sentence, or one per model of a gate, the worst first."""
OTHER_LINES = 5
"""Lines of the screen that are always shown in addition to the rows of the ranking."""
MIN_ROWS = 5

STYLES: dict[str, str] = {
    Verdict.RESOLVED: "green",
    Verdict.TIED: "cyan",
    Verdict.OPEN: "yellow",
    Verdict.OUT_OF_REACH: "dim",
    Verdict.BLOCKED: "red",
    Verdict.UNDECIDED_BY_LABELS: "magenta",
}
CAP_NAMES = {"trials": "trials", "tokens": "tokens", "usd": "USD", "gpu_seconds": "GPU time", "wall_seconds": "time"}


class LiveDisplay(Display):
    """Draws the status until the run ends, then prints the summary."""

    def __init__(self, scale: Scale, console: Console | None = None) -> None:
        self._scale = scale
        self._console = console or Console(highlight=False, markup=False)
        self._rates = Rates()
        self._events: deque[str] = deque(maxlen=SHOWN_EVENTS)
        self._status: Status | None = None
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self._name, self._take = safe_line(name), take
        self._live = Live(
            get_renderable=self._draw, console=self._console, refresh_per_second=1 / REFRESH_SECONDS, transient=True
        )
        self._live.start()
        self._tick()

    def happened(self, event: Event) -> None:
        if (sentence := event_sentence(event)) is not None:
            self._events.append(sentence)

    def stopping(self, in_flight: int, at_most: float) -> None:
        self._events.append(stopping_line(in_flight, at_most, "Ctrl-C again stops at once"))

    def closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._live.stop()
            for line in self._events:
                self._console.print(Text(line))

    def ended(self, ended: Ended) -> None:
        screen = Text(last_screen(ended, self._console.width))
        screen.highlight_regex(r"(?m)^FAIL: .*", "red")
        screen.highlight_regex(r"(?m)^PASS: .*", "green")
        self._console.print(screen, soft_wrap=True)  # a command is one line, however long

    def _tick(self) -> None:
        status = self._take()
        self._rates.add(status.elapsed, status.new_trials, status.new_tokens)
        self._status = status
        self._timer = asyncio.get_running_loop().call_later(REFRESH_SECONDS, self._tick)

    def _draw(self) -> RenderableType:
        status = self._status
        if status is None:
            return Text("starting")
        below = list(self._lines_below(status))
        above = [Text(line) for line in status.finding[:SHOWN_FINDINGS]]
        height = sum(len(self._console.render_lines(part)) for part in (*above, *below))
        rows = max(self._console.height - OTHER_LINES - height, MIN_ROWS)
        return Group(
            title_line(self._name, status, self._rates.eta(status.trials_to_go)),
            *above,
            ranking(
                status.standings,
                self._scale,
                self._console.width,
                rows,
                without_tiers=status.results is not None and not has_tiers(status.results),
            ),
            Text(status.states),
            *below,
        )

    def _lines_below(self, status: Status) -> Iterator[RenderableType]:
        """Lines below the ranking, which have priority over its rows."""
        if status.caps:
            yield budgets(status.caps)
        yield traffic(status, self._rates)
        yield from (
            Text(f"{label}: {text}", "dim") for label, text in further_costs(status.used.grading, status.used.beside)
        )
        for line in list(self._events):
            yield Text(shorten(line, 2 * self._console.width, placeholder=" …"), style="yellow")


def title_line(name: str, status: Status, eta: float | None) -> Text:
    """The run's name, look, elapsed time and remaining time."""
    remaining = "" if eta is None else f" · about {duration(eta)} left"
    place = f"look {status.looks}" if status.looks else "first round"
    return Text.assemble((name, "bold"), f" · {place} · {duration(status.elapsed)}{remaining}")


def ranking(
    standings: Sequence[Standing], scale: Scale, width: int, rows: int, *, without_tiers: bool
) -> RenderableType:
    """Models from best to worst."""
    if not standings:
        return Text("no ranking yet", style="dim")
    shown = standings[:rows]
    head, lines, *_ = ranking_text(shown, scale, width, without_tiers=without_tiers)
    parts = [Text(head, style="dim")]
    for standing, (before, verdict) in zip(shown, lines, strict=True):
        state = standing.clauses[0].verdict if standing.clauses else ""
        style = "red" if standing.row.set_aside is not None else STYLES.get(state, "")
        parts.append(Text.assemble(before, (verdict, style)))
    if len(standings) > rows:
        parts.append(Text(f"      and {len(standings) - rows} more", style="dim"))
    return Group(*parts)


def budgets(caps: Sequence[Cap]) -> RenderableType:
    """A bar for each cap."""
    grid = Table.grid(padding=(0, 1))
    for cap in caps:
        timed = cap.name.endswith("seconds")
        used, of = (duration(cap.used), duration(cap.cap)) if timed else (count(cap.used), count(cap.cap))
        bar = ProgressBar(total=cap.cap, completed=min(cap.used, cap.cap), width=24)
        grid.add_row(Text(CAP_NAMES[cap.name], style="dim"), bar, Text(f"{used} of {of}"))
    return grid


def traffic(status: Status, rates: Rates) -> Text:
    """Requests, rates and failures in one line."""
    line = Text(style="dim").append(f"{count(status.used.spent.trials)} trials, {count(status.judged)} in scores")
    parts = [f"{number_or_dash(rates.trials, 1)} trials/s", f"{count(rates.tokens)} tokens/s", *under_way(status)]
    line.append("".join(f" · {part}" for part in parts))
    line.highlight_regex(r"\d+ of \d+ replicas down", "red")
    return line


def under_way(status: Status) -> list[str]:
    """Requests in flight, failures and batches, without those that there are none of."""
    now = status.traffic
    parts = [f"{count(now.in_flight)} in flight"] if now.in_flight is not None else []
    parts += [f"{count(now.retries)} retries"] if now.retries else []
    parts += [f"{count(now.errors)} errors"] if now.errors else []
    down = now.replicas - now.healthy_replicas
    parts += [f"{down} of {now.replicas} replicas down"] if down else []
    pending = pending_in_short(status.batches)
    return parts if pending is None else [*parts, pending]
