"""Lines and points as an SVG, for the figures of benchmarks: panels side by side, x on a log scale."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, TOP, GAP, LEGEND = 360, 260, 56, 34, 64, 120
COLOURS = ("#1b4f8a", "#c1440e", "#2e7d32", "#7b1fa2", "#00838f", "#8d6e00", "#555555", "#ad1457")
TICKS = (1, 1.5, 2, 3, 5, 7)


class Series(NamedTuple):
    """Points in the order of their line."""

    name: str
    points: Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """One set of axes."""

    title: str
    series: Sequence[Series]


class _Axes:
    """Where a panel's values lie on the page."""

    def __init__(self, panel: Panel, left: float) -> None:
        xs, ys = zip(*(point for one in panel.series for point in one.points), strict=True)
        self.left = left
        self.low, self.high = math.log(min(xs) / 1.1), math.log(max(xs) * 1.1)
        self.top = math.ceil(max(ys) * 10.0 + 0.5) / 10.0
        self.bottom = math.floor(min(ys) * 10.0 - 0.5) / 10.0

    def x(self, value: float) -> float:
        return self.left + WIDTH * (math.log(value) - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return float(TOP + HEIGHT * (self.top - value) / (self.top - self.bottom))

    def ticks(self) -> Iterator[tuple[float, float, str, str]]:
        """Position, and what stands there: (x, y, text, anchor)."""
        for power in range(math.floor(self.low / math.log(10)), math.ceil(self.high / math.log(10)) + 1):
            for tick in TICKS:
                value = tick * 10.0**power
                if self.low <= math.log(value) <= self.high:
                    yield self.x(value), TOP + HEIGHT + 16, f"{value:g}", "middle"
        steps = round((self.top - self.bottom) * 10)
        for step in range(steps + 1):
            value = self.bottom + step / 10.0
            yield self.left - 6, self.y(value) + 4, f"{value:.1f}", "end"


def scatter(panels: Sequence[Panel], x_title: str, y_title: str) -> str:
    """The figure; the legend is that of the first panel."""
    width = LEFT + len(panels) * (WIDTH + GAP) + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 50}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, LEFT + number * (WIDTH + GAP), x_title, y_title)
    for number, one in enumerate(panels[0].series):
        at = TOP + 14 + 18 * number
        left = width - LEGEND
        parts.append(f'<circle cx="{left}" cy="{at - 4}" r="4" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(_text(left + 10, at, one.name))
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, left: float, x_title: str, y_title: str) -> Iterator[str]:
    axes = _Axes(panel, left)
    yield f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>'
    yield _text(left, TOP - 12, panel.title)
    yield _text(left + WIDTH / 2, TOP + HEIGHT + 36, x_title, "middle")
    yield _text(left + 6, TOP + 16, y_title)
    for x, y, label, anchor in axes.ticks():
        yield _text(x, y, label, anchor)
    for number, one in enumerate(panel.series):
        colour = COLOURS[number % len(COLOURS)]
        places = [(axes.x(x), axes.y(y)) for x, y in one.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-opacity="0.6"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
