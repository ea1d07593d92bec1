"""Figures of studies, as SVG and PNG, in the common style."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_eval.show.plots import STYLES, colour, grid, line_style, plain_name, save_figure, styled
from adaptive_eval.study.experiment import Panel, StudyFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT, ROW = 3.1, 0.14
"""Height of a panel, and additional height for each row of a heat map or named rank, in inches."""
MAX_NAMED = 8
"""Most curves for which there is a legend."""
LONGEST_TITLE = 90
END_LABEL: Any = {"textcoords": "offset points", "va": "center", "fontsize": 7}
"""Style of a curve's name at its end."""
MARKERS = "osD^vPX*<>hp"
"""Markers of curves with a single point."""


def draw_study_figures(figures: tuple[StudyFigure, ...], folder: Path, mend: str) -> list[Path]:
    """Draw all figures into an existing folder; `mend` says what to do if one cannot be written."""
    paths = []
    with styled():
        for one in figures:
            heights = [
                HEIGHT + ROW * len(panel.curves) * (panel.kind == "cells" or panel.up == "rank") for panel in one.panels
            ]
            figure, all_axes = grid(len(one.panels), 1, sum(heights), heights)
            labels = dict.fromkeys(curve.label for panel in one.panels if panel.up != "rank" for curve in panel.curves)
            colours = {label: number for number, label in enumerate(labels)}
            for axes, panel in zip(all_axes, one.panels, strict=True):
                _draw_cells(figure, axes, panel) if panel.kind == "cells" else _draw(axes, panel, colours)
            paths += save_figure(figure, folder, one.name, mend)
    return paths


def _draw_cells(figure: "Figure", axes: "Axes", panel: Panel) -> None:
    """Draw a heat map; missing values are blank, and a dot marks a cell in which no replicate converges."""
    cells = np.full((len(panel.curves), len(panel.columns)), np.nan)
    for row, curve in enumerate(panel.curves):
        places = np.array(curve.x, dtype=int)
        cells[row, places] = curve.y
        axes.scatter(places, np.full(len(places), row), s=4, color="#999999", zorder=0)
    image = axes.imshow(cells, aspect="auto", cmap="viridis", interpolation="nearest")
    axes.set_xticks(range(len(panel.columns)), [plain_name(name) for name in panel.columns], rotation=90)
    axes.set_yticks(range(len(panel.curves)), [curve.label for curve in panel.curves])
    axes.tick_params(labelsize=7)
    axes.set_title(plain_name(panel.title, LONGEST_TITLE), fontsize=9)
    if not np.isnan(cells).all():
        figure.colorbar(image, ax=axes, label=panel.up)


def _draw(axes: "Axes", panel: Panel, colours: Mapping[str, int]) -> None:
    """Draw a panel; a label has the same colour in all panels of a figure (grey if all of them show ranks)."""
    from matplotlib.ticker import MaxNLocator

    width = 0.8 / max(len(panel.curves), 1)
    for place, curve in enumerate(panel.curves):
        label, number = plain_name(curve.label, LONGEST_TITLE) or None, colours.get(curve.label)
        drawn = colour(number) if number is not None else "#666666"
        dashes = line_style(number) if number is not None else STYLES[place % len(STYLES)]
        x, y = np.array(curve.x, dtype=float), np.array(curve.y, dtype=float)
        if panel.kind == "bars":
            step = np.diff(x).min() if len(x) > 1 else 1.0
            at = x + (place - (len(panel.curves) - 1) / 2.0) * width * step
            axes.bar(at, y, width * step, label=label, color=drawn)
        elif panel.kind == "steps":
            axes.step(x, y, where="post", label=label, color=drawn, linestyle=dashes, linewidth=1.3)
        elif len(x) == 1:
            axes.plot(x, y, MARKERS[place % len(MARKERS)], label=label, color=drawn, markersize=6)
        else:
            axes.plot(x, y, label=label, color=drawn, linestyle=dashes, linewidth=1.4)
    axes.set_title(plain_name(panel.title, LONGEST_TITLE), fontsize=9)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    if all(float(at).is_integer() for curve in panel.curves for at in curve.x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.kind != "bars":
        axes.set_xlim(left=0.0)
    if panel.up.startswith(("share", "coverage", "mean |z|")):
        axes.set_ylim(bottom=0.0)
    elif panel.up == "rank":
        axes.invert_yaxis()  # the best on top
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        ends = sorted((curve.y[-1], curve.label) for curve in panel.curves)
        for place, (rank, label) in enumerate(ends, start=1):  # equal ranks are written below each other
            axes.annotate(plain_name(label), (panel.curves[0].x[-1], max(rank, place)), (4, 0), **END_LABEL)
    axes.set_axisbelow(True)
    axes.grid(axis="y", alpha=0.3)
    if panel.up != "rank" and 1 < len(panel.curves) <= MAX_NAMED:  # outside, so as not to cover the curves
        axes.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
