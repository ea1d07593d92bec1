"""Filters answers of a log that repeat another one of the same question and model, word for word.

A server that ignores the seed, or serves a cache, gives the same answer many times: such answers are not independent,
and count once. A long text does not come twice by chance. A short one may, such as the letter of a choice, so short
repeats count if the model's answers to some question differ, which shows that it was sampled.
"""

from collections import Counter
from typing import Generic, NamedTuple, TypeVar

from adaptive_eval.endpoints.types import Answer
from adaptive_eval.store.records import answer_digest, counted_size
from adaptive_eval.store.repeats import SHORTEST_REPEAT

Trial = TypeVar("Trial")


class GivenAnswer(NamedTuple):
    """An answer with its model and question."""

    model: str
    question: str
    answer: Answer | None
    """None if its text is unknown."""


class Repeats(Generic[Trial]):
    """Passes on the trials that count, and holds back those for which that is not yet known."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], set[int]] = {}
        self._held_back: dict[str, list[Trial]] = {}
        self._vary: set[str] = set()
        self._long: Counter[str] = Counter()

    def take(self, answered: GivenAnswer, trial: Trial) -> list[Trial]:
        """Add a trial; returns the trials that count now: none, this one, or this one after those held back."""
        digest = None if answered.answer is None else answer_digest(answered.answer)
        if answered.answer is None or digest is None:
            return [trial]
        seen, model = self._seen.setdefault((answered.model, answered.question), set()), answered.model
        long = counted_size(answered.answer.text) + counted_size(answered.answer.reasoning or "") >= SHORTEST_REPEAT
        if digest in seen and long:
            self._long[model] += 1
            return []
        if digest in seen and model not in self._vary:
            self._held_back.setdefault(model, []).append(trial)
            return []
        released: list[Trial] = []
        if seen and digest not in seen:
            self._vary.add(model)
            released = self._held_back.pop(model, [])
        seen.add(digest)
        return [*released, trial]

    @property
    def dropped(self) -> dict[str, int]:
        """Number of repeats that do not count, by model."""
        found = self._long + Counter({model: len(held) for model, held in self._held_back.items()})
        return dict(found)
