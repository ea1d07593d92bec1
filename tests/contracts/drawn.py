"""Contents of a figure as values: names, and the marks that stand by them."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scorio.moments import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def is_named(name: str, text: str) -> bool:
    """Whether a text has the name as a word."""
    return name in re.split(r"\W+", text)


def texts(figure: "Figure") -> Iterator[str]:
    """Every text of a figure."""
    from matplotlib.text import Text

    yield from (text.get_text() for text in figure.findobj(Text))


def formulas(figure: "Figure") -> Iterator[str]:
    """Every text that is seen and of which a part between dollars is drawn as a formula, but for numbers of an axis."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        content = text.get_text()
        parsed = text.get_visible() and text.get_parse_math()
        if parsed and "\\mathdefault{" not in content and re.search(r"(?<!\\)\$", content):
            yield content


def same_data(first: Any, second: Any) -> bool:
    """Whether two lines go through the same points."""
    before, after = (np.asarray(line.get_xydata(), dtype=float) for line in (first, second))
    return np.array_equal(before, after, equal_nan=True)


def looks_like(line: Any) -> tuple[str, ...]:
    """Colour, dashes and marker of a line, which tell it from others."""
    from matplotlib.colors import to_hex

    return to_hex(line.get_color()), str(line.get_linestyle()), str(line.get_marker())


def places_of(axes: "Axes", along: str, models: Sequence[str]) -> dict[str, int]:
    """Place of each model's name along an axis, in whole steps; empty if names are no ticks."""
    axis = getattr(axes, f"{along}axis")
    places: dict[str, int] = {}
    for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=False):
        for name in models:
            if is_named(name, label.get_text()):
                places[name] = round(float(place))
    return places


def points_drawn(axes: "Axes") -> Iterator[FloatArray]:
    """Points (n, 2) of each line, the corners of each bar, and the points of each cloud, in the units of the axes."""
    for line in axes.lines:
        if line.get_transform() == axes.transData:
            yield np.asarray(line.get_xydata(), dtype=float)
    for patch in axes.patches:
        if patch.get_data_transform() == axes.transData:
            yield np.asarray(patch.get_path().transformed(patch.get_patch_transform()).get_extents().get_points())
    for cloud in axes.collections:
        if cloud.get_offset_transform() == axes.transData:
            yield np.asarray(cloud.get_offsets(), dtype=float)


def marks_by_place(axes: "Axes", along: str) -> dict[int, list[tuple[float, ...]]]:
    """Marks at each whole step along an axis, by their numbers."""
    by_place: dict[int, list[tuple[float, ...]]] = {}
    for place, values in _marks(axes, along == "x"):
        by_place.setdefault(round(place), []).append(tuple(round(value, 9) for value in values))
    return {place: sorted(values) for place, values in by_place.items()}


def _marks(axes: "Axes", across: bool) -> Iterator[tuple[float, tuple[float, ...]]]:
    at, to = (0, 1) if across else (1, 0)
    for line in axes.lines:
        for point in np.column_stack(line.get_data()).astype(float):
            if np.isfinite(point[at]):
                yield point[at], (point[to],)
    for patch in axes.patches:
        box = patch.get_path().transformed(patch.get_patch_transform()).get_extents()
        if np.isfinite([*box.min, *box.max]).all():
            yield (box.min[at] + box.max[at]) / 2.0, (box.min[to], box.max[to])
    for collection in axes.collections:
        offsets: Any = collection.get_offsets()
        paths = collection.get_paths()
        points = offsets if len(offsets) > 1 or not paths else np.concatenate([path.vertices for path in paths])
        for point in np.asarray(points, dtype=float):
            if np.isfinite(point[at]):
                yield point[at], (point[to],)
    for image in axes.images:
        values = np.asarray(image.get_array(), dtype=float)
        for place, row in enumerate(values.T if across else values):
            yield float(place), tuple(row)
