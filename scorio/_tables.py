"""Named values as an HTML table, for notebooks; data frames as outcomes, whichever library they come from."""

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from scorio.moments import FloatArray

MAX_ROWS = 60
"""Rows of a table that are shown."""


def html_table(value: Any) -> str:
    """A named tuple of numbers and arrays: one column per field, one row per entry."""
    columns = {name: np.asarray(field) for name, field in zip(value._fields, value, strict=True)}
    widest = max(columns.values(), key=lambda column: column.size)
    places = list(np.ndindex(widest.shape))
    numbered = [f"<th>{'' if widest.ndim == 0 else escape(str(place)[1:-1].rstrip(','))}</th>" for place in places]
    rows = (
        f"<tr>{head}{''.join(f'<td>{cell}</td>' for cell in _cells(columns, place))}</tr>"
        for head, place in zip(numbered[:MAX_ROWS], places, strict=False)
    )
    names = "".join(f"<th>{escape(name)}</th>" for name in columns)
    omitted = f"<p>and {len(places) - MAX_ROWS} more</p>" if len(places) > MAX_ROWS else ""
    return f"<table><thead><tr><th></th>{names}</tr></thead><tbody>{''.join(rows)}</tbody></table>{omitted}"


def _cells(columns: dict[str, Any], place: tuple[int, ...]) -> Iterator[str]:
    for column in columns.values():
        position = place[: column.ndim]
        inside = len(position) == len(place) and all(at < size for at, size in zip(position, column.shape, strict=True))
        yield f"{column[position]:.6g}" if inside or column.ndim == 0 else ""


def is_frame(values: Any) -> bool:
    """A data frame or a column of one, of pandas or of what behaves alike."""
    return hasattr(values, "to_numpy")


def frame_outcomes(frame: Any, name: str) -> FloatArray:
    """The cells as numbers, -1 where a trial is missing (NaN, NA, None)."""
    cells = np.asarray(frame)
    if cells.dtype == object:
        missing = (
            np.asarray(frame.isna())
            if hasattr(frame, "isna")
            else np.array([cell is None for cell in cells.flat]).reshape(cells.shape)
        )
        cells = np.where(missing, np.nan, cells)
    try:
        numbers = cells.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold whole numbers, and nothing where a trial is missing; got {cells}") from None
    if (numbers < 0).any():
        raise ValueError(f"{name} must hold categories >= 0, got {numbers[numbers < 0][0]:g}; a missing trial is NaN")
    return np.where(np.isnan(numbers), -1.0, numbers)
