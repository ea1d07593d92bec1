"""For how long a run holds a real GPU, compared with the fixed design of 80 trials.

Six models on 30 questions share one engine. The engine decodes for as long as a model of a known world would answer,
so that the GPU does the real work, while grades, lengths and the true order are known: a server in front of the engine
draws each answer and its length from model, question and seed, has the engine generate as many tokens (`ignore_eos`),
and then sends the drawn answer. So the same seed gives the same answers in every design. Any engine with the API of
vLLM will do, with any model.

    vllm serve Qwen/Qwen2.5-7B-Instruct --port 8000 --max-num-seqs 64
    python benchmarks/gpu.py --url http://localhost:8000/v1 [--runs 3] [--json PATH]

Without a URL, an engine without a GPU stands in. It takes as long for a step as one H100 did with seven billion
weights: this tests the script, and says nothing of a GPU.
"""

import asyncio
import json
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
from aiohttp import web
from tables import Check, arguments, at_most, markdown, publish

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.base.http_server import HttpServer
from adaptive_eval.core.types import Verdict
from adaptive_eval.report.results_file import read_results
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.replies import send_reply
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, shared_difficulty

MODELS = 6
DESIGNS = ("fixed", "time", "cost")
HOST = "127.0.0.1"
SEQUENCES = (1, 16, 64, 128, 256)
STEP_MS = (7.35, 7.96, 10.7, 14.5, 23.3)
"""Milliseconds of a decoding step with so many sequences, measured on one H100 (7.2 billion weights, bf16)."""
MAX_HELD_OVER_ASKED = 1.15
"""Goal for the time that the GPU is held by `time`, as a multiple of its share of the answers."""
HEADER = ("seed", "design", "answers", "share", "held, s", "share", "held / answers", "calls", "wrong")


class Ran(NamedTuple):
    """One run; times in seconds."""

    answers: int
    held: float
    """From its first request to its last answer."""
    calls: int
    wrong: int


class Front(SimulatedServer):
    """Answers with drawn answers, after the engine has generated as many tokens for each."""

    def __init__(self, world: World, seed: int, url: str, median_tokens: int) -> None:
        super().__init__(world, seed=seed)
        self._world, self._url, self._median_tokens = world, url.rstrip("/"), median_tokens
        self.answers, self.first, self.last = 0, 0.0, 0.0
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> "Front":
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout())
        async with self._session.get(f"{self._url}/models") as response:
            self._model = (await response.json())["data"][0]["id"]
        await super().__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        await self._session.close()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            async with self._session.get(f"{self._url.removesuffix('/v1')}/metrics") as response:
                return web.Response(status=response.status, body=await response.read(), content_type="text/plain")
        raw = await request.read()
        reply = self._handle(request.method, request.path, raw)
        if reply.sequences:
            prompt = json.dumps(json.loads(raw).get("messages"))
            self.first = self.first or time.monotonic()
            try:
                await asyncio.gather(*(self._generate(prompt, seconds) for seconds in reply.sequences))
            except (aiohttp.ClientError, RuntimeError) as error:
                if not self.failed.done():
                    self.failed.set_result(f"the engine failed: {error}")
                raise
            finally:
                self.last = time.monotonic()
            reply = replace(reply, parts=tuple((0.0, data) for _, data in reply.parts))
        return await send_reply(request, reply, None)

    async def _generate(self, prompt: str, seconds: float) -> None:
        """Have the engine generate one answer's number of tokens."""
        tokens = max(round(seconds / self._world.latency.median * self._median_tokens), 1)
        length = {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True}
        body = {"model": self._model, "prompt": prompt, "temperature": 1.0} | length
        async with self._session.post(f"{self._url}/completions", json=body) as response:
            if response.status != 200:
                raise RuntimeError(f"the engine answered {response.status}: {(await response.text())[:300]}")
            generated = (await response.json())["usage"]["completion_tokens"]
        if generated != tokens:
            raise RuntimeError(f"the engine generated {generated} tokens of {tokens}: it must honour ignore_eos")
        self.answers += 1


class StandIn:
    """An engine without a GPU: every sequence in flight gets a token at each step of an H100."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._left: dict[asyncio.Future[None], int] = {}

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "stand-in"}]})
        if request.path == "/metrics":
            running = min(len(self._left), self._slots)
            gauges = {"running": running, "waiting": len(self._left) - running}
            return web.Response(text="".join(f"vllm:num_requests_{name} {n}\n" for name, n in gauges.items()))
        tokens = json.loads(await request.read())["max_tokens"]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left[done] = tokens
        try:
            await done
        finally:  # also if the client has gone
            self._left.pop(done, None)
        return web.json_response({"usage": {"completion_tokens": tokens}})

    async def decode(self) -> None:
        """Take one step after the other."""
        due = time.monotonic()
        while True:
            running = list(self._left)[: self._slots]
            due = max(due, time.monotonic() - 0.1) + float(np.interp(len(running), SEQUENCES, STEP_MS)) / 1e3
            await asyncio.sleep(max(due - time.monotonic(), 0.0))
            for answer in running:
                if answer.done():
                    continue
                self._left[answer] -= 1
                if not self._left[answer]:
                    answer.set_result(None)


@asynccontextmanager
async def engine(options: Namespace) -> AsyncIterator[str]:
    """The URL of an engine: the given one, or a stand-in."""
    if options.url:
        yield options.url
        return
    stand_in = StandIn(options.slots)
    http = HttpServer(stand_in.respond)
    port = await http.listen(HOST, 0)
    decoding = asyncio.create_task(stand_in.decode())
    try:
        yield f"http://{HOST}:{port}/v1"
    finally:
        decoding.cancel()
        await http.close()


async def run(design: str, url: str, world: World, options: Namespace, seed: int, cap: int) -> Ran:
    """One real run, as a process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(world)))
        async with Front(world, seed, url, options.median_tokens) as front:
            trials: dict[str, Any] = {"max": cap, "optimize": "time" if design == "fixed" else design}
            settings = {
                "questions": "questions.jsonl",
                "models": [{"name": model, "base_url": front.base_url, "gpus": 1} for model in world.models],
                "grader": "math",
                "seed": seed,
                "trials": trials | ({"min": cap} if design == "fixed" else {}),
                "concurrency": options.slots,
            }
            (folder / "run.yaml").write_text(json.dumps(settings))
            command = ("-m", "adaptive_eval", "run", str(folder / "run.yaml"), "--run-dir", str(folder / "run"))
            process = await asyncio.create_subprocess_exec(sys.executable, *command, "--display", "none")
            ended = asyncio.create_task(process.wait())
            await asyncio.wait((ended, front.failed), return_when=asyncio.FIRST_COMPLETED)
            if front.failed.done():
                process.kill()
                await ended
                raise SystemExit(front.failed.result())
            if process.returncode not in (ExitCode.REACHED, ExitCode.SPENT):
                raise SystemExit(f"a run ended with {process.returncode}")
            spent = front.answers, front.last - front.first
        results = read_results(folder / "run")
    assert results is not None
    truth = dict(zip(world.models, world.truth.tolist(), strict=True))
    called = [pair for pair in results.pairs if pair.verdict == Verdict.RESOLVED.value and pair.second is not None]
    return Ran(*spent, len(called), sum(truth[pair.first] <= truth[str(pair.second)] for pair in called))


async def measure(options: Namespace) -> tuple[list[tuple[object, ...]], float]:
    """All designs with every seed, and how much longer `time` holds the GPU than its share of the answers."""
    world = replace(shared_difficulty(MODELS), latency=Latency(1.0, 1.0, 2.0, 8.0))
    rows, ratios = list[tuple[object, ...]](), dict[str, list[float]]()
    async with engine(options) as url:
        for seed in range(options.runs):
            ran: dict[str, Ran] = {}
            for design in DESIGNS:
                ran[design] = await run(design, url, world, options, seed, 8 if options.quick else 80)
                (answers, seconds, *calls), fixed = ran[design], ran["fixed"]
                asked, held = answers / fixed.answers, seconds / fixed.held
                ratios.setdefault(design, []).append(held / asked)
                rows.append((seed, design, answers, asked, f"{seconds:.0f}", held, held / asked, *calls))
                print(*rows[-1], file=sys.stderr)
    return rows, float(np.mean(ratios["time"]))


def main() -> None:
    parser = arguments(__doc__, runs=1, quick_runs=1)
    parser.add_argument("--url", help="base URL of an engine that serves nobody else")
    parser.add_argument("--slots", type=int, default=64, help="sequences that the engine decodes at a time")
    parser.add_argument("--median-tokens", type=int, default=30, help="median length of a right answer")
    options = parser.parse_args()
    options.median_tokens = min(options.median_tokens, 4) if options.quick else options.median_tokens
    rows, ratio = asyncio.run(measure(options))
    check = "`time`: GPU held over answers"
    is_real = options.url and not options.quick
    checks = [at_most(check, ratio, MAX_HELD_OVER_ASKED, 2) if is_real else Check(check, round(ratio, 2))]
    kind = options.url or "a stand-in without a GPU"
    about = f"Engine: {kind}; {options.slots} slots, median {options.median_tokens} tokens."
    publish(options, "A real GPU", about, markdown(HEADER, rows), checks=checks)


if __name__ == "__main__":
    main()
