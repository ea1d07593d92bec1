"""A stored run as one value: what reports, monitors and comparisons are made of.

`results` is what results.json says; the rest is what it leaves out because it grows with the run, or because only a
reader of the whole run needs it. Plain values throughout, so that the whole is JSON as it stands; a number that does
not exist is None. Nothing here says where the run lies, since reports are published.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from adaptive_eval.reading.words import Words
from adaptive_eval.results import Results
from adaptive_eval.store import ReplicaTraffic, Spending


@dataclass(frozen=True, slots=True)
class PairView:
    """One comparison at one look; positive z favours `better`, which was placed higher at that look."""

    better: str
    worse: str | None
    """None: a fixed value (objectives threshold and precision)."""
    verdict: str
    z: float | None
    boundary: float | None
    information: float | None


@dataclass(frozen=True, slots=True)
class LookView:
    """One look whole; the lists are in the order of `models`, which is that of the configuration."""

    look: int
    """Counted from 1."""
    at: float
    """Seconds since 1970."""
    models: tuple[str, ...]
    order: tuple[str, ...]
    """From best to worst."""
    trials: tuple[int, ...]
    tiers: tuple[int, ...]
    scores: tuple[float | None, ...]
    sigmas: tuple[float | None, ...]
    pairs: tuple[PairView, ...]


@dataclass(frozen=True, slots=True)
class EventView:
    """Something that happened to the run."""

    at: float
    kind: str
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class QuestionView:
    """What was asked."""

    id: str
    prompt: str
    answer: str
    choices: tuple[str, ...]
    cluster: str | None


@dataclass(frozen=True, slots=True)
class RunView:
    """The whole run but for its trials."""

    results: Results | None
    """None before the first look."""
    name: str
    words: Words
    """What it decides and promises."""
    configuration: Mapping[str, object]
    """Complete, with every default, and without any secret."""
    weights: tuple[float, ...]
    categories: tuple[str, ...]
    """What the rubric calls them."""
    models: tuple[str, ...]
    """In the order of the configuration."""
    questions: tuple[QuestionView, ...]
    """In the order of the run, which is that of `results.questions` too."""
    trials: tuple[tuple[int, ...], ...]
    """[model][question]: every stored trial with a grade, those of a round in flight too."""
    looks: tuple[LookView, ...]
    z: tuple[tuple[float | None, ...], ...]
    """[i][j]: z of model i against model j after the latest look, positive where i is ahead; both in the order of
    `results.models`. Empty before the first look."""
    trials_to_go: float | None
    """What the open comparisons still need at most; None before the first look."""
    spending: tuple[Spending, ...]
    """Cumulative, at up to `STEPS` moments."""
    traffic: tuple[ReplicaTraffic, ...]
    events: tuple[EventView, ...]
    elapsed: float
    """Seconds the run has been active, over all its starts."""
    error: str | None = None
    """What ended it, where that was an error."""


STEPS = 200
