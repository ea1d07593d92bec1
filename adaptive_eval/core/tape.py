"""A tape: the outcome of every trial that a replay may ask for, fixed before the replay starts.

The same tape gives the same outcomes in whatever order they are asked, as servers with fixed seeds do.

Values are drawn layer by layer: layer t holds trial t of every model and question. A layer is drawn when it is first
needed, and always after those before it, so that a trial's value depends on the seed alone.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scorio.moments import FloatArray, IntArray

Value = TypeVar("Value", int, float)


class TrialArrays(NamedTuple):
    """Trials by model, question and number: arrays of one shape."""

    model: IntArray
    question: IntArray
    trial: IntArray


class Layers(Generic[Value]):
    """Values looked up in an endless iterator of arrays (L, M)."""

    def __init__(self, layers: Iterator[NDArray[Any]]) -> None:
        self._layers = layers
        self._drawn: NDArray[Any] | None = None
        """(T, L, M): drawn layers, and room for more."""
        self._depth = 0

    def at(self, model: int, question: int, trial: int) -> Value:
        """The value of one trial."""
        if trial >= self._depth:
            self._draw(trial)
        return self._values[trial, model, question]  # a memoryview is four times as fast as an array

    def look_up(self, trials: TrialArrays) -> NDArray[Any]:
        """The values of many trials."""
        deepest = int(trials.trial.max(initial=0))
        if deepest >= self._depth:
            self._draw(deepest)
        assert self._drawn is not None
        return np.asarray(self._drawn[trials.trial, trials.model, trials.question])

    def _draw(self, trial: int) -> None:
        while self._depth <= trial:
            layer: NDArray[Any] = next(self._layers)
            if self._drawn is None or self._depth == len(self._drawn):
                room = np.empty((max(2 * self._depth, 8), *layer.shape), layer.dtype)
                if self._drawn is not None:
                    room[: self._depth] = self._drawn
                self._drawn, self._values = room, room.data
            self._drawn[self._depth] = layer
            self._depth += 1


Categories = NDArray[np.unsignedinteger]
Meaning = tuple[int | None, int]
"""The category of a trial (None: it has no grade), and the kinds of its answer, as in `Outcome`."""


class Tape(Layers[int]):
    """Categories by model, question and trial, and the rubric's weights."""

    def __init__(self, layers: Iterator[Categories], weights: FloatArray, meanings: Sequence[Meaning] = ()) -> None:
        """`meanings`: what the values stand for, if not for categories of plain answers; then `answer` gives them."""
        super().__init__(layers)
        self.weights, self._meanings = weights, meanings

    @classmethod
    def from_chances(cls, chances: FloatArray, weights: FloatArray, rng: np.random.Generator) -> "Tape":
        """Independent draws with the probabilities (L, M, K)."""
        return cls.continued(np.empty((*chances.shape[:2], 0), int), chances, weights, rng)

    @classmethod
    def from_counts(
        cls, counts: IntArray, weights: FloatArray, rng: np.random.Generator, meanings: Sequence[Meaning] = ()
    ) -> "Tape":
        """Recorded counts (L, M, K) drawn without replacement; after a cell's last trial, by its shares."""
        return cls(_draw_from_urns(counts, rng), weights, meanings)

    @classmethod
    def continued(
        cls,
        outcomes: IntArray,
        chances: FloatArray,
        weights: FloatArray,
        rng: np.random.Generator,
        meanings: Sequence[Meaning] = (),
    ) -> "Tape":
        """Recorded outcomes (L, M, N) under their trials' own numbers, with draws by `chances` in place of -1."""
        return cls(_fill_gaps(outcomes, chances, rng), weights, meanings)

    def answer(self, model: int, question: int, trial: int) -> Meaning:
        """The outcome of one trial, with the kinds of its answer."""
        value = self.at(model, question, trial)
        return self._meanings[value] if self._meanings else (value, 0)


def _draw_from_urns(counts: IntArray, rng: np.random.Generator) -> Iterator[Categories]:
    """One urn per cell, drawn from without replacement; an empty urn gives draws from the full one, forever."""
    urns = counts.astype(np.int64)
    categories = np.arange(counts.shape[-1])
    while True:
        is_filled = urns.any(axis=-1, keepdims=True)
        layer = _pick(np.where(is_filled, urns, counts).cumsum(axis=-1), rng)
        urns -= (layer[..., None] == categories) & is_filled
        yield layer


def without_gaps(outcomes: IntArray) -> IntArray:
    """Recorded outcomes (L, M, N) in their order, with the places of missing ones, -1, behind them."""
    return np.take_along_axis(outcomes, np.argsort(outcomes < 0, axis=-1, kind="stable"), axis=-1)


def _fill_gaps(outcomes: IntArray, chances: FloatArray, rng: np.random.Generator) -> Iterator[Categories]:
    edges = chances.cumsum(axis=-1)
    for trial in count():
        drawn = _pick(edges, rng)
        recorded = outcomes[..., trial] if trial < outcomes.shape[-1] else np.full(drawn.shape, -1)
        yield np.where(recorded >= 0, recorded, drawn).astype(drawn.dtype)


def _pick(edges: FloatArray | IntArray, rng: np.random.Generator) -> Categories:
    """One category for each cell: the first whose cumulative weight (L, M, K) exceeds a uniform fraction of the sum."""
    at = rng.random(edges.shape[:-1]) * edges[..., -1]
    picked = np.zeros(at.shape, dtype=np.min_scalar_type(edges.shape[-1]))
    for category in range(edges.shape[-1] - 1):  # along a short last axis a sum takes five times as long
        picked += at >= edges[..., category]
    return picked
