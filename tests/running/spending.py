"""Servers that count what they generate, report any usage, and lose some answers on the way; a judge's among them.

The run is the product's own, its endpoints with their repeats and time limits included. Only the wire is left out, and
the time is that of a patient loop.
"""

import asyncio
import json
import re
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fakes import uniform
from lives import QUESTIONS, Killed, Start, World, server_answer
from patient_time import PatientLoop

from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.client import Reply
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.redaction import EMPTY_REDACTOR
from adaptive_eval.endpoints.replica import ProbeTrouble
from adaptive_eval.endpoints.types import Endpoint, EndpointConfig, Limits, Sampling
from adaptive_eval.machine.clocks import RunClock
from adaptive_eval.running.regrade import regrade

MAX_TOKENS = 2000
"""Answers nearly as long: what is reserved is little more than what is generated."""
PROMPT_TOKENS = 2
SLOTS = 4
TIMEOUT = 8.0
PRICE = 2.0
GPUS = 2.0
TRUE, MISSING, ABSURD, LOW, BEYOND, ADDED = "true", "missing", "absurd", "low", "beyond", "added"
ADDED_TOKENS = 20_000
"""Tokens that a gateway adds to each prompt."""
TIMES_BEYOND = 3
RESET, HUNG, GARBLED, REFUSED = "reset", "hung", "garbled", "refused"
JUDGE = "judge"
REPLY_TOKENS = 1000
"""The most tokens that a judge may use; it uses nearly as many."""
_SHOWN = re.compile(r"<(reference|answer)-[0-9a-f]{16}>\n(.*?)\n</", re.DOTALL)
_LINE = re.compile(r"^([A-Z]+-[0-9a-f]{16}): <verdict>", re.MULTILINE)


@dataclass
class Attempt:
    """What a server did for one request."""

    model: str
    start: int
    tokens: list[int]
    """Of each answer with its share of the prompt; none where the server has refused."""
    prompt_tokens: int
    """Those of each prompt."""
    seconds: float = 0.0
    came: bool = False


@dataclass
class Spender(World):
    """The servers, and what they would charge."""

    usage: str = TRUE
    faults: Mapping[str, float] = field(default_factory=dict)
    """Shares of attempts that end so."""
    judge_usage: str = ""
    """What the judge's server reports of its usage; empty: what the others do."""
    judge_faults: Mapping[str, float] = field(default_factory=dict)
    judge_excess: int = 1
    """How many times its limit of tokens the judge generates."""
    slow: str = ""
    """A model whose answers take far longer than those of others."""
    mute: float = 0.0
    """A share of the judge's replies that have no verdict."""
    attempts: list[Attempt] = field(default_factory=list)
    active: list[float] = field(default_factory=list)
    """Seconds of each start."""

    def _carried_out(self, run: Coroutine[Any, Any, object]) -> None:
        loop = PatientLoop(settle=0.0)

        async def timed() -> None:
            try:
                await run
            finally:  # the loop's own end waits for threads, while which its clock goes on
                self.active.append(loop.time())

        clock = patch("adaptive_eval.running.start.RunClock", partial(RunClock, clock=loop.time))
        with clock, asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(timed())

    def _endpoint(self, model: ModelConfig, limits: Limits) -> Endpoint:
        wire = _Wire(self, model.name, self.usage, self.faults)
        return ModelEndpoint(EndpointContext(model, model.sampling, limits, wire))

    @contextmanager
    def _in_place_of_the_world(self, start: Start) -> Iterator[None]:
        def opened(
            config: EndpointConfig, sampling: Sampling, limits: Limits, *, keys: object, folder: Path
        ) -> ModelEndpoint:
            return ModelEndpoint(EndpointContext(config, sampling, limits, _JudgeWire(self)))

        place = "adaptive_eval.graders.asking.open_endpoint"
        with super()._in_place_of_the_world(start), patch(place, opened):
            yield

    def judge_anew(self, config: RunConfig, directory: Path, start: Start) -> None:
        """`adaptive-eval regrade --config`: every verdict is asked for once more."""
        with self._in_place_of_the_world(start), suppress(Killed):
            self._carried_out(regrade(directory, config))

    @property
    def judged(self) -> list[Attempt]:
        """What the judge's server has done."""
        return [attempt for attempt in self.attempts if attempt.model == JUDGE]


class _Wire:
    """The `Caller` of one model; a word of four letters is a token."""

    redactor = EMPTY_REDACTOR
    unauthorized = ""
    longest = MAX_TOKENS
    """Tokens that it may give."""

    def __init__(self, world: Spender, model: str, usage: str, faults: Mapping[str, float]) -> None:
        self._world, self._model, self._usage_kind, self._faults = world, model, usage, faults
        self._asked = 0

    @property
    def _gone(self) -> bool:
        return self._asked >= self._world.start.failing.get(self._model, self._asked + 1)

    def _text(self, body: Mapping[str, Any], seed: int) -> str:
        """What it answers."""
        content = body["messages"][-1]["content"]
        asked = next((key for key in QUESTIONS if f"ask {key}" in content), None)
        return "OK." if asked is None else server_answer(self._model, asked, seed)  # a tiny request asks nothing

    async def ask(self, base_url: str, body: Mapping[str, Any]) -> Reply:
        return await self.send(base_url, body)

    async def send(self, base_url: str, body: Mapping[str, Any], pulse: object = None) -> Reply:
        world, loop = self._world, asyncio.get_running_loop()
        world.start.moment()
        if self._gone:
            raise Failure(FailureKind.UNREACHABLE, "nobody listens")
        self._asked += 1
        seeds = range(body["seed"], body["seed"] + body.get("n", 1))
        fate = self._fate(seeds)
        tokens = [] if fate == REFUSED else [self._tokens(seed) for seed in seeds]
        attempt = Attempt(self._model, world.starts, tokens, self._prompt_tokens)
        world.attempts.append(attempt)
        began = loop.time()
        try:
            await self._befalls(fate, seeds)
        finally:
            attempt.seconds = loop.time() - began
        world.start.moment()
        attempt.came = fate != GARBLED
        return Reply(200, {}, b"", self._payload(fate, body, seeds, attempt.tokens), attempt.seconds, None)

    async def _befalls(self, fate: str, seeds: range) -> None:
        if fate == HUNG:
            await asyncio.sleep(TIMEOUT)
            raise Failure(FailureKind.TIMED_OUT, f"no whole answer within {TIMEOUT:g} s")
        is_slow = self._model == self._world.slow
        await asyncio.sleep(0.9 * TIMEOUT if is_slow else 0.5 + 2.5 * uniform("takes", self._model, seeds.start))
        if fate == REFUSED:
            raise Failure(FailureKind.SERVER_ERROR, "HTTP 500: it says so")
        if fate == RESET:
            raise Failure(FailureKind.RESET, "the connection was reset")

    def _fate(self, seeds: range) -> str:
        drawn, below = uniform("fate", len(self._world.attempts), self._model, seeds.start), 0.0
        for fate, share in self._faults.items():
            below += share
            if drawn < below:
                return fate
        return ""

    def _tokens(self, seed: int) -> int:
        return (TIMES_BEYOND if self._usage_kind == BEYOND else 1) * (self.longest - seed % 50) + self._prompt_tokens

    @property
    def _prompt_tokens(self) -> int:
        return PROMPT_TOKENS + (ADDED_TOKENS if self._usage_kind == ADDED else 0)

    def _payload(self, fate: str, body: Mapping[str, Any], seeds: range, tokens: Sequence[int]) -> object:
        if fate == GARBLED:
            return {"choices": []}
        choices = []
        for number, (seed, length) in enumerate(zip(seeds, tokens, strict=True)):
            thoughts = "abc " * (length - self._prompt_tokens - 1)
            message = {"content": self._text(body, seed), "reasoning": thoughts}
            choices.append({"index": number, "message": message, "finish_reason": "stop"})
        return {"choices": choices} | self._usage(sum(tokens) - self._prompt_tokens * len(tokens))

    def _usage(self, completion: int) -> dict[str, object]:
        if self._usage_kind == MISSING:
            return {}
        reported = {ABSURD: 2_000_000_000, LOW: 1}.get(self._usage_kind, completion)
        prompt = reported if self._usage_kind == ABSURD else self._prompt_tokens
        return {"usage": {"prompt_tokens": prompt, "completion_tokens": reported}}

    async def models(self, base_url: str) -> Reply:
        if self._gone:
            raise Failure(FailureKind.UNREACHABLE, "nobody listens")
        return Reply(200, {}, b"", {"data": [{"id": self._model}]}, 0.0, None)

    async def probe(self, base_url: str) -> ProbeTrouble | None:
        return ProbeTrouble("nobody listens") if self._gone else None

    async def connect_trouble(self, base_url: str) -> str | None:
        return None  # nobody can tell, as behind a proxy

    async def fetch_outside_api(self, base_url: str, path: str) -> bytes:
        return b""

    async def close(self) -> None:
        return None


class _JudgeWire(_Wire):
    """The judge's: it knows what is right by the reference, and says so as it is asked to."""

    longest = REPLY_TOKENS

    def __init__(self, world: Spender) -> None:
        super().__init__(world, JUDGE, world.judge_usage or world.usage, world.judge_faults)
        self._mute, self._excess = world.mute, world.judge_excess

    def _tokens(self, seed: int) -> int:
        return self._excess * super()._tokens(seed)

    def _text(self, body: Mapping[str, Any], seed: int) -> str:
        content = "\n".join(message["content"] for message in body["messages"])
        shown, line = dict(_SHOWN.findall(content)), _LINE.search(content)
        if not shown:
            return "OK."  # a tiny request shows no answer
        if uniform("mute", seed, shown["answer"]) < self._mute:
            return "I cannot say."
        verdict = "correct" if shown["answer"] == shown["reference"] else "wrong"
        if body.get("response_format", {"type": "text"}) != {"type": "text"}:
            return json.dumps({"reasoning": "As they are.", "verdict": verdict})
        assert line is not None
        return f"As they are.\n{line[1]}: {verdict}"
