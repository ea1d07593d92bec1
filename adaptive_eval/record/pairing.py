"""Models that were asked with the same seeds: how far their outcomes go together, trial by trial.

A server that draws by Gumbel-max, with noise keyed by seed and position, gives models with one vocabulary the same
random numbers where their prompts and seeds are the same, as those of `seeds: consecutive` are. Near copies then err
together, and their difference is known better than z says, which takes them for independent; outcomes that go against
each other make z too large. What z is made of stays as it is: this only tells.

On the trials that both have, n_q of question q, with the values x and y and sums of squares S about the means of their
question, the variance of the difference of the averages, over that of independent models, is

    R = sum_q S_(x-y),q / (n_q (n_q - 1))  /  sum_q (S_x,q + S_y,q) / (n_q (n_q - 1))

and its standard error, were they independent, 2 sqrt(sum_q S_x S_y / (n_q^2 (n_q - 1)^3)) over the same denominator.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adaptive_eval.config.run import ModelConfig
from adaptive_eval.record.restore import StoredRun
from adaptive_eval.record.results import PairRow
from adaptive_eval.store import TrialsImported, events_of_kind

Values = Mapping[str, Mapping[int, float]]
"""By question and trial, what the answer of one model is worth."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two models that are compared, and were asked with the same seeds."""

    better: str
    worse: str
    trials: int
    """That both have."""
    variance: float
    """Of their difference on these, over that of independent models: below 1 where they go together."""
    sigma: float
    """The standard error of that, were they independent."""

    @property
    def is_shown(self) -> bool:
        """Independent models would hardly look like that: it happens to one pair in some 400."""
        return abs(self.variance - 1.0) > 3.0 * self.sigma


def pairings(stored: StoredRun, pairs: Sequence[PairRow]) -> tuple[Pairing, ...]:
    """Of the compared pairs; none where no seeds were shared, or it is not known which an answer had."""
    config = stored.setup.config
    if config.seeds != "consecutive" or events_of_kind(stored.events, TrialsImported):
        return ()
    bases = {model.name: _base(model) for model in config.models if model.recorded is None}
    alike = [
        (pair.better, pair.worse)
        for pair in pairs
        if pair.worse is not None and pair.better in bases and pair.worse in bases
        if bases[pair.better] == bases[pair.worse]
    ]
    if not alike:
        return ()
    values = _values(stored, {name for both in alike for name in both})
    found = (pairing(better, worse, values[better], values[worse]) for better, worse in alike)
    return tuple(one for one in found if one is not None)


def _base(model: ModelConfig) -> int | None:
    """Where its seeds begin; None: where the run's do."""
    return model.sampling.seed


def _values(stored: StoredRun, names: set[str]) -> Mapping[str, Values]:
    """Of these models, every answer that has a grade."""
    weights, found = stored.rubric.weights, {name: dict[str, dict[int, float]]() for name in names}
    for one in stored.reader.outcomes():
        if one.model in names and one.category is not None:
            found[one.model].setdefault(one.question, {})[one.trial] = weights[one.category]
    return found


def pairing(better: str, worse: str, first: Values, second: Values) -> Pairing | None:
    """Of two models; None where they have too little in common, or all of it is alike."""
    trials, together, apart, noise = 0, 0.0, 0.0, 0.0
    for x, y in _shared(first, second):
        n = len(x)
        trials += n
        each = n * (n - 1.0)
        of_x, of_y, of_both = (float(np.square(one - one.mean()).sum()) for one in (x, y, x - y))
        together += of_both / each
        apart += (of_x + of_y) / each
        noise += of_x * of_y / (each * each * (n - 1.0))
    if not apart > 0.0:
        return None
    return Pairing(better, worse, trials, together / apart, 2.0 * math.sqrt(noise) / apart)


def _shared(first: Values, second: Values) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each question the values of the trials that both have, where these are at least two."""
    for question, own in first.items():
        other = second.get(question, {})
        both = sorted(own.keys() & other.keys())
        if len(both) > 1:
            yield np.array([own[trial] for trial in both]), np.array([other[trial] for trial in both])
