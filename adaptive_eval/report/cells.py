"""Counts of trials by model, question and category at a report, from which its rows of questions are made."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import DamagedValue
from adaptive_eval.store.packing import Parts

_INTEGER = np.dtype("<i4")


@dataclass(frozen=True, slots=True, eq=False)
class CellCounts:
    """Counts (L, M, K) of the models with these numbers, and of all questions of the store."""

    models: tuple[int, ...]
    arrived: NDArray[np.integer]
    """All outcomes, also those of the round in flight."""
    judged: NDArray[np.integer]
    """Outcomes of complete rounds."""
    prior: NDArray[np.integer] | None = None
    """Outcomes of an earlier run that count in the scores (R0); None if there are none."""

    def to_parts(self) -> Parts:
        """The counts as little-endian integers: their shape, the models, and the arrays."""
        head = np.array([*self.judged.shape, *self.models], _INTEGER)
        arrays = [head, self.arrived, self.judged, *([] if self.prior is None else [self.prior])]
        return [np.ascontiguousarray(array, _INTEGER).data for array in arrays]

    @classmethod
    def from_parts(cls, parts: Parts) -> "CellCounts":
        """Counts from `to_parts`, however they are cut; raises `DamagedValue` if they are anything else."""
        data = b"".join(parts)
        values = np.frombuffer(data[: len(data) // 4 * 4], _INTEGER)
        shape: Sequence[int] = values[:3].tolist()
        size = int(np.prod(shape, dtype=np.int64)) if len(shape) == 3 and min(shape) >= 0 else -1
        first = 3 + shape[0] if size >= 0 else 0
        if size < 0 or len(values) - first not in (2 * size, 3 * size):
            raise DamagedValue("the stored report has counts of another size")
        arrays = values[first:].reshape(-1, *shape) if size else np.zeros((2, *shape), _INTEGER)
        return cls(tuple(values[3:first].tolist()), *arrays)
