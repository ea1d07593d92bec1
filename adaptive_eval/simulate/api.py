"""The OpenAI chat, completions and models API of a simulated world, as a function from requests to timed replies."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import orjson

from adaptive_eval.simulate.answering import Drawn, Respondent
from adaptive_eval.simulate.faults import Fault, Faults, Window
from adaptive_eval.simulate.http1 import Reply, Request, response
from adaptive_eval.simulate.places import Places
from adaptive_eval.simulate.shapes import Choice, Shape, cut

MAX_N = 128

_CHAT, _TEXT = "/v1/chat/completions", "/v1/completions"


class BadRequest(Exception):
    """A request that no retry mends."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def _error(status: int, message: str, code: str | None = None, headers: str = "") -> Reply:
    body = orjson.dumps({"error": {"message": message, "type": "simulated", "param": None, "code": code}})
    return Reply(((0.0, response(status, body, headers)),))


def _integer(body: dict[str, Any], name: str, low: int, high: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadRequest(400, f"{name} must be an integer from {low} to {high}, but got {value!r}")
    return value


def _prompt(body: dict[str, Any], chat: bool) -> str:
    """The text in which the question's id is looked for."""
    if not chat:
        text = body.get("prompt")
        if not isinstance(text, str):
            raise BadRequest(400, f"prompt must be a string, but got {type(text).__name__}")
        return text
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest(400, "messages must be a list that is not empty")
    contents = [message.get("content") if isinstance(message, dict) else None for message in messages]
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) < len(messages):
        raise BadRequest(400, "every message must be an object whose content is a string")
    return "\n".join(texts)


class Api:
    """Answers requests; `now` gives the seconds since the server started."""

    def __init__(
        self, respondent: Respondent, faults: Faults, now: Callable[[], float], places: Places | None = None
    ) -> None:
        self._respondent = respondent
        self._faults = faults
        self._now = now
        self._places = places
        self._attempts: Counter[object] = Counter()
        self._serial = count()
        self.counts: Counter[str] = Counter()
        """Requests for answers by what they got: `answered`, or the name of a fault, or `rejected`."""

    def handle(self, request: Request) -> Reply:
        """The reply to any request."""
        if request.path in (_CHAT, _TEXT):
            if request.method != "POST":
                return _error(405, f"{request.path} takes POST")
            return self._completion(request.path == _CHAT, request.body)
        if request.path == "/health":
            return Reply(((0.0, response(503 if self._is(self._faults.stuck) else 200, b"")),))
        if request.path == "/v1/models":
            owner = "llamacpp" if self._faults.count_one else "simulated"
            served = self._respondent.world.models
            data = [{"id": model, "object": "model", "owned_by": owner} for model in served]
            return Reply(((0.0, response(200, orjson.dumps({"object": "list", "data": data}))),))
        if request.path == "/metrics":
            return Reply(((0.0, response(200, self._metrics(), kind="text/plain; version=0.0.4")),))
        return _error(404, f"there is nothing at {request.path}")

    def _metrics(self) -> bytes:
        lines = ["# TYPE simulate_requests_total counter"]
        lines += [f'simulate_requests_total{{result="{name}"}} {n}' for name, n in sorted(self.counts.items())]
        if self._places is not None:
            for name, n in (("running", self._places.running), ("waiting", self._places.waiting)):
                lines.append(f"# TYPE vllm:num_requests_{name} gauge")
                lines.append(f'vllm:num_requests_{name}{{engine="0",model_name="simulated"}} {n:.1f}')
        return ("\n".join(lines) + "\n").encode()

    def _is(self, windows: tuple[Window, ...]) -> bool:
        return bool(windows) and any(window.holds(self._now()) for window in windows)

    # -- one completion ------------------------------------------------------------------------------------------

    def _completion(self, chat: bool, raw: bytes) -> Reply:
        try:
            body = orjson.loads(raw)
            if not isinstance(body, dict):
                raise BadRequest(400, f"the body must be an object, but got {type(body).__name__}")
            prompt = _prompt(body, chat)
            choices = self._choices(body, prompt)
        except orjson.JSONDecodeError as error:
            self.counts["rejected"] += 1
            return _error(400, f"the body is not JSON: {error}")
        except BadRequest as error:
            self.counts["rejected"] += 1
            return _error(error.status, str(error), error.code)
        fault = self._fault(body, prompt)
        self.counts[fault.value if fault is not None else "answered"] += 1
        sequences = tuple(choice.seconds * self._faults.slow for choice in choices)
        seconds = max(sequences)
        if fault is Fault.RATE_LIMITED:
            wait = f"Retry-After: {self._faults.retry_after:g}\r\n"
            return _error(429, "too many requests", "rate_limit_exceeded", wait)
        if fault is Fault.SERVER_ERROR:
            return _error(500, "the engine stumbled")
        if fault is Fault.RESET:
            return Reply((), reset_after=seconds / 2.0)
        shape = Shape(body, prompt, chat, self._faults.count_one)
        if body.get("stream") is True:
            stream = shape.stream(next(self._serial), choices, seconds, hang=fault is Fault.HANG)
            return replace(stream, sequences=sequences)
        if fault is Fault.HANG:
            return Reply((), ends=False)
        whole = response(200, orjson.dumps(shape.payload(next(self._serial), choices)))
        return Reply(((seconds, whole),), sequences=sequences)

    def _fault(self, body: dict[str, Any], prompt: str) -> Fault | None:
        if self._is(self._faults.stuck):
            return Fault.HANG
        if self._is(self._faults.storm):
            return Fault.RATE_LIMITED
        if not self._faults.any_drawn:
            return None
        request = (body["model"], prompt, body.get("seed"), body.get("n"))
        attempt = self._attempts[request]
        self._attempts[request] += 1
        return self._faults.draw(request, attempt)

    def _choices(self, body: dict[str, Any], prompt: str) -> list[Choice]:
        model = body.get("model")
        if not isinstance(model, str) or not self._respondent.serves(model):
            raise BadRequest(404, f"the model {model!r} does not exist", "model_not_found")
        limit = _integer(body, "max_completion_tokens", 1, 2**31)
        limit = limit or _integer(body, "max_tokens", 0, 2**31)
        seed = _integer(body, "seed", -(2**63), 2**63 - 1)
        if seed is None:
            seed = next(self._serial)
        answers = _integer(body, "n", 1, MAX_N) or 1
        if self._faults.ignore_n:
            answers = 1
        try:
            question = self._respondent.question_in(prompt)
        except KeyError as error:
            raise BadRequest(400, f"{error} is no question of the world {self._respondent.world.name}") from None
        if question is None:
            return [cut(Drawn(0, "OK.", 0.0, 0), limit, body.get("stop"))] * answers
        drawn = [self._respondent.answer(model, question, seed + child) for child in range(answers)]
        return [cut(answer, limit, body.get("stop")) for answer in drawn]
