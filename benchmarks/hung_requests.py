"""What requests that hang cost, and what becomes of long answers meanwhile: endpoints in virtual time.

    python benchmarks/hung_requests.py [--quick] [--json PATH] [--markdown PATH]

Four models with 248 requests and 16 places each; answers take one to three seconds (20 tokens a second) and 1% of the
requests hang. `round`: all requests are there from the beginning; `rounds`: 8 rounds of 31 requests a model, each begun
when the last one is over. Times as long as the same run without faults: mean and largest of three runs.

Long answers: 1% are ten times as long, or lengths spread by a factor of e, and nothing hangs. In percent: requests sent
twice, answers that are not those of the first request, and by how much the mean length is off, where servers draw
another answer at each request. Where they give the same one, none is replaced, and as many are sent twice or fewer.

Without second requests, a round took 3.0, 16 and 65 times as long at 256, 2,048 and 32,768 tokens (one run; 1.4
streamed). With limits from seconds = a + b tokens and three standard errors instead, 2.0 and 8.3 times at 256 and 2,048
tokens: an answer of `max_tokens` may honestly take so long.
"""

import asyncio
import selectors
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tables import Check, arguments, machine, markdown, publish

from adaptive_eval.endpoints.client import Reply
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.redaction import EMPTY_REDACTOR
from adaptive_eval.endpoints.replica import ProbeTrouble
from adaptive_eval.endpoints.traffic import Attempt
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Message, Prompt, Sampling
from adaptive_eval.simulate.answering import hashed_integers

MODELS, REQUESTS, PLACES, ROUNDS = 4, 248, 16, 8
TOKENS_A_SECOND, PIECE_SECONDS = 20.0, 0.2
HANG, LONG, TIMES_LONGER = 0.01, 0.01, 10.0
MAX_TOKENS = (256, 2048, 32768)
GOAL = 1.3


class VirtualSelector(selectors.SelectSelector):
    """Moves the clock on instead of waiting: nothing here comes from outside."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += 1e-9 + (timeout or 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


@dataclass
class Server:
    """What a server does with the requests of one model; a request is named by its seed."""

    model: int
    run: int
    hang: float = 0.0
    long: float = 0.0
    same: bool = True
    sigma: float = 0.25
    sent: Counter[int] = field(default_factory=Counter)

    def draw(self, what: str, seed: int, attempt: int) -> np.random.Generator:
        return np.random.default_rng(hashed_integers(2, what, self.run, self.model, seed, attempt))

    def tokens(self, seed: int, attempt: int) -> int:
        rng = self.draw("answer", seed, 0 if self.same else attempt)
        seconds = 1.7 * float(np.exp(self.sigma * rng.standard_normal()))
        return round(seconds * TOKENS_A_SECOND * (TIMES_LONGER if rng.random() < self.long else 1.0))

    def hangs(self, seed: int, attempt: int) -> bool:
        return self.draw("fault", seed, attempt).random() < self.hang


class Wire:
    """The client of one model, without a network."""

    redactor = EMPTY_REDACTOR
    unauthorized = ""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def ask(self, base_url: str, body: Mapping[str, Any]) -> Reply:
        return await self.send(base_url, body)

    async def send(self, base_url: str, body: Mapping[str, Any], pulse: Attempt | None = None) -> Reply:
        loop, server, seed = asyncio.get_running_loop(), self._server, body["seed"]
        attempt = server.sent[seed]
        server.sent[seed] += 1
        tokens, hangs = server.tokens(seed, attempt), server.hangs(seed, attempt)
        begun = loop.time()
        ends = begun + tokens / TOKENS_A_SECOND
        while body.get("stream") and loop.time() + PIECE_SECONDS < ends:
            await asyncio.sleep(PIECE_SECONDS)
            if pulse is not None:
                pulse.record_piece(loop.time())
            if hangs:
                break
        if hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(ends - loop.time())
        choice = {"index": 0, "message": {"content": f"{seed}: {tokens}"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": tokens}
        return Reply(200, {}, b"", {"choices": [choice], "usage": usage}, loop.time() - begun, None)

    async def models(self, base_url: str) -> Reply:
        return Reply(200, {}, b"", {"data": [{"id": "m"}]}, 0.0, None)

    async def probe(self, base_url: str) -> ProbeTrouble | None:
        return None

    async def fetch_outside_api(self, base_url: str, path: str) -> tuple[int, bytes]:
        return 404, b""

    async def close(self) -> None:
        return None


@dataclass(frozen=True)
class Outcome:
    """What came of one run."""

    seconds: float
    twice: float
    """Share of requests that were sent more than once."""
    replaced: float
    """Share of answers that are not those of the first requests."""
    length: float
    """Mean length of the answers over that of the first requests', less 1."""


async def carry_out(servers: Sequence[Server], rounds: int, max_tokens: int, stream: bool | None) -> Outcome:
    """Ask every model everything."""
    loop = asyncio.get_running_loop()
    sampling = Sampling(max_tokens=max_tokens)
    endpoints = [
        ModelEndpoint(
            EndpointConfig.model_validate({"base_url": f"http://{server.model}/v1", "model": "m", "stream": stream}),
            sampling,
            Limits(in_flight=PLACES),
            Wire(server),  # type: ignore[arg-type]
        )
        for server in servers
    ]
    prompt = Prompt(messages=(Message(role="user", content="?"),))
    slots = [asyncio.Semaphore(PLACES) for _ in endpoints]

    async def asked(model: int, seed: int) -> int:
        async with slots[model]:
            (answer,) = await endpoints[model].sample(prompt, range(seed, seed + 1))
        return answer.completion_tokens

    begun, lengths = loop.time(), []
    per_round = REQUESTS // rounds
    for first in range(0, REQUESTS, per_round):
        round_of = [asked(model, seed) for model in range(MODELS) for seed in range(first, first + per_round)]
        lengths += await asyncio.gather(*round_of)
    seconds = loop.time() - begun
    for endpoint in endpoints:
        await endpoint.close()
    firsts = [
        server.tokens(seed, 0)
        for first in range(0, REQUESTS, per_round)
        for server in servers
        for seed in range(first, first + per_round)
    ]
    return Outcome(
        seconds,
        float(np.mean([number > 1 for server in servers for number in server.sent.values()])),
        float(np.mean(np.not_equal(lengths, firsts))),
        float(np.mean(lengths) / np.mean(firsts) - 1.0),
    )


def run(number: int, rounds: int, max_tokens: int, stream: bool | None, **server: Any) -> Outcome:
    """One run in virtual time."""
    servers = [Server(model, number, **server) for model in range(MODELS)]
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(carry_out(servers, rounds, max_tokens, stream))


Row = tuple[object, ...]


def hanging(runs: int) -> tuple[list[Row], list[Check]]:
    """What hangs cost in time."""
    rows, checks = list[Row](), list[Check]()
    for max_tokens in MAX_TOKENS:
        for stream in (False, True):
            for name, rounds in (("round", 1), ("rounds", ROUNDS)):
                pairs = [
                    (run(number, rounds, max_tokens, stream, hang=HANG), run(number, rounds, max_tokens, stream))
                    for number in range(runs)
                ]
                ratios = [hung.seconds / plain.seconds for hung, plain in pairs]
                what = "streamed" if stream else "whole"
                mean = float(np.mean(ratios))
                rows.append((max_tokens, what, name, round(mean, 2), round(max(ratios), 2)))
                if rounds == 1:
                    checks.append(
                        Check(
                            f"{max_tokens:,} tokens, {what}: times as long",
                            round(mean, 2),
                            f"<= {GOAL}",
                            None if runs == 1 else mean <= GOAL,
                        )
                    )
    return rows, checks


def long_answers(runs: int) -> list[Row]:
    """What is done to answers that are ten times as long, and to those whose lengths spread widely."""
    rows: list[Row] = []
    kinds: dict[str, dict[str, Any]] = {"1% ten times as long": {"long": LONG}, "spread e": {"sigma": 1.0}}
    for kind, settings in kinds.items():
        for what, max_tokens, stream in (("whole", 2048, False), ("default", 256, None), ("streamed", 2048, True)):
            for name, rounds in (("round", 1), ("rounds", ROUNDS)):
                outcomes = [run(number, rounds, max_tokens, stream, same=False, **settings) for number in range(runs)]
                figures = [
                    round(100.0 * float(np.mean([getattr(outcome, figure) for outcome in outcomes])), 2)
                    for figure in ("twice", "replaced", "length")
                ]
                rows.append((kind, what, name, *figures))
    return rows


def _side_by_side(rows: Sequence[Row], keys: int) -> list[Row]:
    """One row for what has one round and what has several."""
    return [
        (*single[:keys], *single[keys + 1 :], *many[keys + 1 :])
        for single, many in zip(rows[::2], rows[1::2], strict=True)
    ]


def show(hung: list[Row], long: list[Row]) -> str:
    """The document."""
    title = f"# What requests that hang cost\n\n{(__doc__ or '').strip()}\n\nOn {machine()}."
    first = markdown(("max_tokens", "answers", "round", "at most", "rounds", "at most"), _side_by_side(hung, 2))
    figures = ("twice", "replaced", "length", "twice, rounds", "replaced", "length")
    second = markdown(("answers", "as", *figures), _side_by_side(long, 2))
    return "\n\n".join([title, first, second]) + "\n"


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    runs = 1 if options.quick else 3
    hung, checks = hanging(runs)
    publish(options, show(hung, long_answers(runs)), checks)
    sys.exit(0 if all(check.holds in (True, None) for check in checks) else 1)


if __name__ == "__main__":
    main()
