"""What the head of a run and its sites tell each other.

Requests go out and answers come in as plain tuples, many in one message: a message costs as much as fifty of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from adaptive_eval.config.run import ModelConfig
from adaptive_eval.endpoints.types import Answer, EndpointStats, Prompt
from adaptive_eval.errors import EndpointError, GraderError, LaunchFailed, NotAskedAgain, Rejected, Unavailable
from adaptive_eval.graders.registry import GraderConfig
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import MarkedAnswer, Marks
from adaptive_eval.launch.endpoint import ServerGone
from adaptive_eval.launch.types import PoolConfig
from adaptive_eval.questions.types import Question
from adaptive_eval.store import Event

FULL_MESSAGE = 256
"""Requests, or answers, that travel in one message at most."""
GATHERING_SECONDS = 0.01
"""How long a message waits for more to go with it."""
BEAT_SECONDS = 1.0
"""A site that has nothing to tell says so as often."""


class SiteGone(ServerGone):
    """A site does not answer any more, and why that is thought; what it was asked is to be asked elsewhere."""


class SiteRequest(NamedTuple):
    """Answers that are wanted: the question by its number, and the seeds `first` to `first + size - 1`."""

    number: int
    question: int
    trial: int
    """That has the first seed."""
    first: int
    size: int
    guarded: bool
    """Whether the head is asked before it is repeated."""


class SiteOrder(NamedTuple):
    """A message from the head to a site."""

    requests: tuple[SiteRequest, ...] = ()
    allowed: tuple[tuple[int, bool], ...] = ()
    """Of requests whose answers were lost on the way, whether they may be repeated."""
    dropped: tuple[int, ...] = ()
    """Requests that nobody waits for any more."""


class SiteReply(NamedTuple):
    """Reply to a request: the packed answers in the order of their seeds, or the error."""

    number: int
    answers: tuple[tuple[Any, ...], ...] = ()
    error: tuple[str, str] | None = None


class SiteNews(NamedTuple):
    """A message from a site to the head."""

    replies: tuple[SiteReply, ...] = ()
    wanted: tuple[int, ...] = ()
    """Requests whose answers were lost on the way, and that would be repeated."""
    events: tuple[Event, ...] = ()
    stats: EndpointStats = EndpointStats()


class SiteFacts(NamedTuple):
    """Facts of a site, as it reports them."""

    node: str
    """The node's name."""
    pid: int
    version: str
    """Of adaptive-eval."""
    devices: str = ""
    """Its GPUs, as CUDA_VISIBLE_DEVICES names them."""
    node_id: str = ""
    """What the cluster calls the node."""
    serves: str = ""
    """The mark of what it serves now."""


@dataclass(frozen=True, slots=True)
class SiteMaterial:
    """Prompts, questions and rubric: the same for all sites of models that are asked alike."""

    prompts: tuple[Prompt, ...]
    questions: tuple[Question, ...]
    grader: GraderConfig | None
    """None: answers are graded on the head, as where a judge is asked."""
    rubric: Rubric


@dataclass(frozen=True, slots=True)
class SiteSetup:
    """How a site works."""

    run: str
    """Its name."""
    head: str
    """Who may tell it what to do: this start of the run."""
    mark: str
    """Of the model that it serves now, and how."""
    marks: frozenset[str]
    """Of all that it may serve in turn; a site that is found again with anything else begins anew."""
    site: str
    """What it is called in the run, such as "site 1"."""
    place: str | None
    """What {place} stands for; None: the GPUs that it was given."""
    pool: PoolConfig | None
    folder: Path
    logs: Path
    has_answered: bool = False
    """The model has answered a request of the run, here or elsewhere."""


@dataclass(frozen=True, slots=True)
class SiteSecrets:
    """Secrets of a site: the model with the headers it is sent, and its keys."""

    model: ModelConfig = field(repr=False)
    keys: Mapping[str, str] = field(repr=False)
    hidden: frozenset[str] = frozenset()
    """Variables that a grader's processes do not get."""


class SiteBegun(NamedTuple):
    """Result of beginning: the events until then, and why the site cannot serve, if it cannot."""

    events: tuple[Event, ...] = ()
    problem: str | None = None


class SiteHandle(Protocol):
    """A site that can be spoken to; everything raises `SiteGone` when it is gone."""

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        """Serve the model in place of the one before, unless it is served like this already."""

    async def news(self, head: str, order: SiteOrder) -> SiteNews:
        """Tell the site what to do, and hear news as soon as there is any, at each heartbeat, or when told more."""

    async def end(self, at_once: bool) -> None:
        """Stop the site's server."""

    def kill(self) -> None:
        """Be rid of it, whatever it is doing; its server ends with it."""


_NAMES = tuple(one.name for one in fields(Answer))
_REPLICA = _NAMES.index("replica")
_fields_of = attrgetter(*_NAMES)


def packed(answer: Answer, marks: Marks | GraderError | None) -> tuple[Any, ...]:
    """An answer and what its grader found, as it travels."""
    if isinstance(marks, GraderError):
        return (*_fields_of(answer), None, marks)
    return (*_fields_of(answer), None if marks is None else (dict(marks.signals), marks.extracted), None)


def unpacked(values: tuple[Any, ...], where: str) -> Answer:
    """The answer as it left the site, but that it came from `where`: each has a server of the same address."""
    *own, marks, trouble = values
    own[_REPLICA] = where
    if marks is None and trouble is None:
        return Answer(*own)
    whole = [*own, None if marks is None else Marks(*marks), trouble]
    return MarkedAnswer(*whole)


_ERRORS: dict[str, type[EndpointError]] = {
    one.__name__: one for one in (LaunchFailed, NotAskedAgain, Rejected, Unavailable)
}


def encode_error(error: EndpointError) -> tuple[str, str]:
    """An error as it travels: its kind in the tree, and its words."""
    kind = next((name for name, one in _ERRORS.items() if isinstance(error, one)), Unavailable.__name__)
    return kind, str(error)


def decode_error(told: tuple[str, str]) -> EndpointError:
    """The error that a site has sent."""
    kind, words = told
    return _ERRORS[kind](words)
