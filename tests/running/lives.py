"""Whole lives of a run, in one process: starts that are killed, stopped or left alone, on a server that remembers.

The run is the product's own, from the configuration to the results, with its own store, machine and graders. Only the
network is left out, and a kill is an exception that nothing catches, after which the dead process writes and asks
nothing more.
"""

import asyncio
import os
import re
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from fakes import WellEndpoint, uniform

from adaptive_eval.base.errors import GraderError, Unavailable
from adaptive_eval.config.prepare import prepare
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.types import Answer, Endpoint, Limits, Prompt, RetryGate
from adaptive_eval.exchange.configure import ImportRequest
from adaptive_eval.exchange.importing import import_logs
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.types import Grade
from adaptive_eval.machine.clocks import RunClock
from adaptive_eval.notes import Event, ModelSetAside
from adaptive_eval.questions.types import Question
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.status import Status
from adaptive_eval.running.live_status import LiveStatus
from adaptive_eval.running.regrade import regrade
from adaptive_eval.running.start import execute
from adaptive_eval.running.watching import Display
from adaptive_eval.store.database import RunDatabase

SKILLS = {"ada": 0.9, "bob": 0.5, "cyd": 0.4}
QUESTIONS = tuple(f"q{number}" for number in range(4))


class Killed(BaseException):
    """The process is dead."""


class Fate(Enum):
    """What happens to a start."""

    NOTHING = "nothing"
    KILL = "kill"
    STOP = "stop"
    STOP_AT_ONCE = "stop at once"


class Request(NamedTuple):
    """One answer that the server was asked for."""

    start: int
    model: str
    question: str
    seed: int


def server_answer(model: str, question: str, seed: int) -> str:
    """The server's answer, which depends only on model, question and seed."""
    return "right" if uniform(model, question, seed) < SKILLS[model] else "wrong"


@dataclass
class Start(Display):
    """One start of the run, or one `regrade`; its moments are counted, and its fate comes at one of them."""

    fate: Fate = Fate.NOTHING
    at: int = 0
    failing: Mapping[str, int] = field(default_factory=dict)
    """Models whose server is gone after so many requests."""
    dead: bool = False
    handles_signals: bool = False
    """Signals are handled now."""
    moments: int = 0
    signalled: bool = False
    end: Ended | None = None

    def moment(self) -> None:
        """Before and after every write, at every request, answer and grade."""
        if self.dead:
            raise Killed
        self.moments += 1
        if self.moments < self.at or self.signalled:
            return
        if self.fate is Fate.KILL:
            self.dead = True
            raise Killed
        if self.handles_signals and self.fate in (Fate.STOP, Fate.STOP_AT_ONCE):
            self.signalled = True
            for _ in range(1 if self.fate is Fate.STOP else 2):
                os.kill(os.getpid(), signal.SIGINT)

    # -- it watches the run to know when signals are handled ---------------------------------------------------------

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self.handles_signals = True

    def closed(self) -> None:
        self.handles_signals = False

    def ended(self, ended: Ended) -> None:
        self.end = ended


@dataclass
class World:
    """The server with its memory, and the grader that may be broken; both outlive every start."""

    log: list[Request] = field(default_factory=list)
    """Every answer that was asked for, in order."""
    refused: list[Request] = field(default_factory=list)
    """Those among them that the server did not give."""
    aside: list[tuple[int, str, int]] = field(default_factory=list)
    """(start, model, length of the log) whenever a model is set aside."""
    broken: set[str] = field(default_factory=set)
    """Questions on which the grader fails."""
    starts: int = 0
    start: Start = field(default_factory=Start)
    log_at_commit: int = 0
    """Length of the log when the newest commit was begun: what was asked before is entered by it."""
    entered: int = 0
    """The same for the newest commit on disk, or for the beginning of the start."""

    def run(self, config: RunConfig, directory: Path, start: Start) -> Ended | None:
        """One start of the run; None where it was killed."""
        with self._in_place_of_the_world(start):
            try:
                self._carried_out(execute(prepare(config), directory, start))
            except Killed:
                return None
        return start.end

    def _carried_out(self, run: Coroutine[Any, Any, object]) -> None:
        asyncio.run(_without_words_of_the_dead(run))

    def regrade(self, directory: Path, start: Start, config: RunConfig) -> None:
        """`adaptive-eval regrade --config`."""
        with self._in_place_of_the_world(start):
            try:
                self._carried_out(regrade(directory, config))
            except Killed:
                return
            except GraderError:
                assert self.broken, "it failed on all that it was given"

    def import_logs(self, request: ImportRequest, start: Start) -> bool:
        """`adaptive-eval import`; False where it was killed."""
        with self._in_place_of_the_world(start):
            try:
                import_logs(request)
            except Killed:
                return False
        return True

    @contextmanager
    def _in_place_of_the_world(self, start: Start) -> Iterator[None]:
        self.starts, self.start = self.starts + 1, start
        self.log_at_commit = self.entered = len(self.log)
        with ExitStack() as stack:
            for place, value in {
                "supplies.opening.open_endpoint": lambda model, _, limits, **__: self._endpoint(model, limits),
                "running.answer_keys.GradingPool": self._pool,
                "exchange.importing.GradingPool": self._pool,
                "running.driver.GATHER_SECONDS": 0.0,
            }.items():
                stack.enter_context(patch(f"adaptive_eval.{place}", value))
            stack.enter_context(patch.object(RunDatabase, "transaction", self._transaction(RunDatabase.transaction)))
            stack.enter_context(patch.object(LiveStatus, "tell", self._tell(LiveStatus.tell)))
            stack.enter_context(patch.object(RunClock, "held", self._held(RunClock.held)))
            yield

    def _held(self, really: Callable[[RunClock], Any]) -> object:
        """The clock is read when the rows of a commit are gathered."""

        def held(clock: RunClock) -> Any:
            self.log_at_commit = len(self.log)
            return really(clock)

        return held

    def _transaction(self, really: Callable[..., object]) -> object:
        @contextmanager
        def transaction(database: RunDatabase) -> Iterator[object]:
            self.start.moment()
            with really(database) as connection:  # type: ignore[attr-defined]
                yield connection
            self.entered = self.log_at_commit
            self.start.moment()

        return transaction

    def _tell(self, really: Callable[..., None]) -> object:
        def tell(status: LiveStatus, event: Event) -> None:
            really(status, event)
            if isinstance(event, ModelSetAside):
                self.aside.append((self.starts, event.model, len(self.log)))

        return tell

    def _endpoint(self, model: ModelConfig, limits: Limits) -> Endpoint:
        return _Endpoint(self, model.name)

    def _pool(self, *arguments: object, **named: object) -> "_Pool":
        return _Pool(self, *arguments, **named)


async def _without_words_of_the_dead(run: Coroutine[Any, Any, object]) -> object:
    """The run, of which nothing is logged that a kill has left behind.

    The traceback would be formatted whenever garbage is collected, which parses code; where code is being parsed then,
    CPython 3.11 raises `SystemError` (gh-106905).
    """

    def log(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Killed):
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(log)
    return await run


class _Endpoint(WellEndpoint):
    """One model at the server; answers come back in an order of their own."""

    def __init__(self, world: World, model: str) -> None:
        self._world, self._model = world, model
        self._requests = 0

    async def sample(self, prompt: Prompt, seeds: range, again: RetryGate | None = None) -> list[Answer]:
        world = self._world
        world.start.moment()
        assert prompt.messages is not None
        match = re.search(r"ask (\S+)", prompt.messages[-1].content)
        assert match is not None
        asked = [Request(world.starts, self._model, match[1], seed) for seed in seeds]
        world.log += asked
        self._requests += 1
        self.in_flight += 1
        try:
            for _ in range(int(8 * uniform("turns", *asked[0]))):
                await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        if self._requests > world.start.failing.get(self._model, self._requests):
            world.refused += asked
            raise Unavailable("no replica left")
        world.start.moment()
        texts = [server_answer(request.model, request.question, request.seed) for request in asked]
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        return [Answer(text, "stop", seed, "here", 0.1, **usage) for text, seed in zip(texts, seeds, strict=True)]


class _Pool(GradingPool):
    """The product's own, which fails on some questions."""

    def __init__(self, world: World, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self._world = world

    def grade_now(self, answer: Answer, question: Question) -> Grade | None:
        """None: grading is a moment, at which a start may be killed."""
        return None

    async def grade(self, answer: Answer, question: Question, again: object = None) -> Grade:
        self._world.start.moment()
        await asyncio.sleep(0)
        if question.id.rpartition("/")[2] in self._world.broken:
            raise GraderError("it is broken")
        return await super().grade(answer, question)
