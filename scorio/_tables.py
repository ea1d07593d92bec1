"""Data frames as outcomes, whichever library they come from."""

from typing import Any

import numpy as np

from scorio.moments import FloatArray


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
