"""Recorded outcomes as one tensor with equally many trials of every question, for studies."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adaptive_eval.errors import ConfigError
from adaptive_eval.exchange.recording import read_recording, recording_of_run
from adaptive_eval.store.address import is_place_of_runs
from scorio.moments import FloatArray, IntArray

MOST_TRIALS = 80
"""Default trials of each question if more were recorded, as in the paper."""


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeTensor:
    """L models, M questions, N trials of each."""

    name: str
    models: tuple[str, ...]
    outcomes: IntArray
    """(L, M, N)"""
    weights: FloatArray

    @property
    def binary(self) -> bool:
        """Whether answers are only right or wrong."""
        return self.weights.size == 2

    def best(self, most: int | None) -> "OutcomeTensor":
        """The models of highest mean score, best first."""
        scores = self.weights[self.outcomes].mean(axis=(1, 2))
        chosen = np.argsort(-scores, kind="stable")[:most]
        models = tuple(self.models[model] for model in chosen)
        return OutcomeTensor(self.name, models, self.outcomes[chosen], self.weights)


def read_tensor(path: Path, trials: int | None, rng: np.random.Generator) -> OutcomeTensor:
    """Read an .npz file or a run; trials in their order, or drawn without replacement if only counts are known."""
    if not (path.exists() or is_place_of_runs(path)):
        raise ConfigError(f"{path} is neither a file nor a run; name an .npz file or a run directory")
    recording = recording_of_run(path) if is_place_of_runs(path) else read_recording(path)
    if recording.weighing is not None:
        raise ConfigError(
            f"{path} has several benchmarks, and these studies need questions of equal weight; study a run of one"
        )
    counts = recording.counts
    fewest = int(counts.sum(axis=-1).min())
    wanted = min(fewest, MOST_TRIALS) if trials is None else trials
    if wanted < 2:
        raise ConfigError(f"{path} must have at least 2 trials of every question by every model, got {fewest} of one")
    if wanted > fewest:
        raise ConfigError(f"--trials must be at most {fewest}, as many as {path} has of every question, got {wanted}")
    if len(recording.models) < 2:
        raise ConfigError(f"{path} must have at least 2 models to rank, but only has {recording.models[0]!r}")
    tensor = _drawn(counts, wanted, rng) if recording.outcomes is None else _first(recording.outcomes, wanted)
    weights = recording.weights if recording.weights is not None else _default_weights(counts.shape[-1], path)
    return OutcomeTensor(path.name if is_place_of_runs(path) else path.stem, recording.models, tensor, weights)


def _default_weights(categories: int, path: Path) -> FloatArray:
    if categories > 2:
        raise ConfigError(f"{path} has {categories} categories without weights; import it as a run")
    return np.array([0.0, 1.0])


def _first(outcomes: IntArray, trials: int) -> IntArray:
    """The first existing trials of each question."""
    order = np.argsort(outcomes < 0, axis=-1, kind="stable")[..., :trials]
    return np.take_along_axis(outcomes, order, axis=-1).astype(np.int64)


def _drawn(counts: IntArray, trials: int, rng: np.random.Generator) -> IntArray:
    """Trials in random order, without replacement."""
    drawn = np.empty((*counts.shape[:2], trials), dtype=np.int64)
    for cell in np.ndindex(*counts.shape[:2]):
        drawn[cell] = rng.permutation(np.repeat(np.arange(counts.shape[-1]), counts[cell]))[:trials]
    return drawn
