"""What a replay draws its trials from: a world of known probabilities, or a recording and a rubric's weights."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.errors import ConfigError
from adaptive_eval.replay.recording import Recording
from adaptive_eval.replay.tape import Tape
from adaptive_eval.simulate.worlds import World
from scorio.moments import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Models and questions with the chances of their trials; those of a recording are its shares."""

    name: str
    models: tuple[str, ...]
    questions: tuple[str, ...]
    weights: FloatArray
    chances: FloatArray
    """(L, M, K): the probability of each category."""
    counts: IntArray | None = None
    """(L, M, K): what was recorded."""
    outcomes: IntArray | None = None
    """(L, M, N): what was recorded, in its order, -1 for no trial."""

    @property
    def truth(self) -> FloatArray:
        """(L,): the true scores, which every estimate is judged by."""
        return np.asarray((self.chances @ self.weights).mean(axis=1))

    @property
    def recorded(self) -> NDArray[np.int64] | None:
        """(L, M): recorded trials; None in a world, which has no end of them."""
        return None if self.counts is None else self.counts.sum(axis=-1)

    def best(self, most: int) -> "Source":
        """The best `most` models by the truth, best first."""
        chosen = np.argsort(-self.truth, kind="stable")[:most]
        return replace(
            self,
            models=tuple(self.models[model] for model in chosen),
            chances=self.chances[chosen],
            counts=None if self.counts is None else self.counts[chosen],
            outcomes=None if self.outcomes is None else self.outcomes[chosen],
        )

    def tape(self, rng: np.random.Generator) -> Tape:
        """Trials in random order: of a recording without replacement."""
        if self.counts is not None:
            return Tape.of_counts(self.counts, self.weights, rng)
        return Tape.of_chances(self.chances, self.weights, rng)

    def tape_in_order(self, rng: np.random.Generator) -> Tape:
        """Trials in the order in which they were recorded, where that is known."""
        if self.outcomes is None or self.counts is None:
            return self.tape(rng)
        return Tape.of_outcomes(self.outcomes, self.counts, self.weights, rng)


def source_of_world(world: World) -> Source:
    """A world; it brings its own weights."""
    return Source(world.name, world.models, world.questions, world.w, world.p)


def source_of_recording(recording: Recording, name: str, weights: FloatArray) -> Source:
    """A recording, judged with the weights of a rubric."""
    counts, categories = recording.counts, len(weights)
    if counts.shape[-1] > categories:
        raise ConfigError(
            f"{name} has trials of category {counts.shape[-1] - 1}, but the rubric has the categories 0 to "
            f"{categories - 1}; give a rubric with a weight for each, such as one of `rubric.categories`"
        )
    padding = np.zeros((*counts.shape[:2], categories - counts.shape[-1]), dtype=np.int64)
    counts = np.concatenate([counts, padding], axis=-1)
    return Source(
        name=name,
        models=recording.models,
        questions=recording.questions,
        weights=weights,
        chances=counts / counts.sum(axis=-1, keepdims=True),
        counts=counts,
        outcomes=recording.outcomes,
    )
