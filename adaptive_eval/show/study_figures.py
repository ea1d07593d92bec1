"""The figures of studies, as SVG and PNG, in the look of all others."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adaptive_eval.show.plots import colour, grid, line_style, plain_name, save_figure, styled
from adaptive_eval.study.experiment import Panel, StudyFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 3.1
"""Of a panel, in inches."""
MOST_NAMED = 12
"""Curves that a legend names."""
MOST_INSIDE = 8
"""Beyond them the legend stands beside the curves."""
LONGEST_TITLE = 90
MARKS = "osD^vPX*<>hp"
"""Of curves that are one point."""


def draw_study_figures(
    figures: tuple[StudyFigure, ...], folder: Path, mend: str, formats: tuple[str, ...] = ("svg", "png")
) -> list[Path]:
    """Every figure into a folder that is there."""
    paths = []
    with styled():
        for one in figures:
            figure, all_axes = grid(len(one.panels), 1, HEIGHT * len(one.panels))
            labels = dict.fromkeys(curve.label for panel in one.panels for curve in panel.curves)
            colours = {label: number for number, label in enumerate(labels)}
            for axes, panel in zip(all_axes, one.panels, strict=True):
                _draw(axes, panel, colours)
            paths += save_figure(figure, folder, one.name, formats, mend)
    return paths


def _draw(axes: "Axes", panel: Panel, colours: Mapping[str, int]) -> None:
    """Draw a panel; what has one label has one colour in all panels of a figure."""
    width = 0.8 / max(len(panel.curves), 1)
    for place, curve in enumerate(panel.curves):
        label, number = plain_name(curve.label) or None, colours[curve.label]
        x, y = np.array(curve.x, dtype=float), np.array(curve.y, dtype=float)
        if panel.kind == "bars":
            step = np.diff(x).min() if len(x) > 1 else 1.0
            at = x + (place - (len(panel.curves) - 1) / 2.0) * width * step
            axes.bar(at, y, width * step, label=label, color=colour(number))
        elif panel.kind == "steps":
            axes.step(
                x, y, where="post", label=label, color=colour(number), linestyle=line_style(number), linewidth=1.3
            )
        elif panel.kind == "points":
            axes.plot(x, y, "o", label=label, color=colour(number), markersize=3.5, alpha=0.8)
        elif len(x) == 1:
            axes.plot(x, y, MARKS[place % len(MARKS)], label=label, color=colour(number), markersize=6)
        else:
            axes.plot(x, y, label=label, color=colour(number), linestyle=line_style(number), linewidth=1.4)
    axes.set_title(plain_name(panel.title, LONGEST_TITLE), fontsize=9)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    if panel.up.startswith("share"):
        axes.set_ylim(bottom=0.0)
    elif panel.up == "rank":
        axes.invert_yaxis()  # the best on top, as everywhere
    axes.grid(axis="y", alpha=0.3)
    if 1 < len(panel.curves) <= MOST_INSIDE:
        axes.legend(frameon=False, fontsize=7, ncols=2)
    elif MOST_INSIDE < len(panel.curves) <= MOST_NAMED:
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
