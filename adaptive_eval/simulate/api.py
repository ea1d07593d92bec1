"""The OpenAI chat, completions and models API of a simulated world, as a function from requests to timed replies."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import orjson

from adaptive_eval.simulate.answering import (
    Respondent,
    SimulatedAnswer,
    draw_logprobs,
    draw_prompt_logprobs,
    split_tokens,
)
from adaptive_eval.simulate.batches import CHAT, BatchApi
from adaptive_eval.simulate.faults import BatchHabits, Fault, Faults, TimeWindow
from adaptive_eval.simulate.judging import JUDGE, VERIFIER, SimulatedJudge, SimulatedVerifier
from adaptive_eval.simulate.replies import EVENTS, ApiReply, ServingSlots, json_reply, whole_reply

FIRST_TOKEN = 0.1
"""Share of an answer's time until its first token."""
STREAM_PIECES = 8
PIECES_PER_SECOND = 2
"""Minimum rate of pieces, since a real server sends each token and is never silent for long."""
MIN_PIECE_SECONDS = 0.01
"""Minimum time between pieces; a busy server combines tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class ResponseShape:
    """Writes the responses to a request."""

    body: dict[str, Any]
    prompt: str
    chat: bool
    count_one: bool
    prompt_bits: float | None

    def payload(self, serial: int, choices: Sequence[SimulatedAnswer]) -> dict[str, Any]:
        """The response without streaming."""
        payload = self._envelope(serial, "chat.completion" if self.chat else "text_completion")
        write = self._chat_choice if self.chat else self._text_choice
        payload["choices"] = [write(index, choice) for index, choice in enumerate(choices)]
        payload["usage"] = self._usage(choices)
        if "prompt_logprobs" in self.body:
            (payload if self.chat else payload["choices"][0])["prompt_logprobs"] = [
                value if value is None else {str(index): {"logprob": value, "rank": 1, "decoded_token": ""}}
                for index, value in enumerate(draw_prompt_logprobs(self.prompt, self.prompt_bits))
            ]
        if self.count_one:
            payload["timings"] = {"predicted_n": choices[0].tokens}
        return payload

    def stream(self, serial: int, choices: Sequence[SimulatedAnswer], seconds: float, hang: bool) -> ApiReply:
        """Server-sent events: the first piece at the first token, the others evenly spaced until the end."""
        envelope = self._envelope(serial, "chat.completion.chunk" if self.chat else "text_completion")
        piece_count = max(STREAM_PIECES, round(PIECES_PER_SECOND * seconds))
        pieces = max(2, min(piece_count, round(seconds / MIN_PIECE_SECONDS), *(choice.tokens for choice in choices)))
        split = [self._deltas(index, choice, pieces) for index, choice in enumerate(choices)]
        parts = []
        for piece, deltas in enumerate(zip(*split, strict=True)):
            at = seconds * (FIRST_TOKEN + (1.0 - FIRST_TOKEN) * piece / (pieces - 1))
            events = [_event(envelope | {"choices": [delta]}) for delta in deltas]
            if piece == pieces - 1:
                events = self._with_usage(envelope, events, choices)
            parts.append((at, b"".join(events)))
        if hang:
            return ApiReply((parts[0],), kind=EVENTS, ends=False)
        parts[-1] = (parts[-1][0], parts[-1][1] + b"data: [DONE]\n\n")
        return ApiReply(tuple(parts), kind=EVENTS)

    def _with_usage(
        self, envelope: dict[str, Any], ends: list[bytes], choices: Sequence[SimulatedAnswer]
    ) -> list[bytes]:
        """The last events, with the usage if requested: after all choices, or after each (llama-server)."""
        options = self.body.get("stream_options")
        if not (isinstance(options, dict) and options.get("include_usage")):
            return ends
        if not self.count_one:
            return [*ends, _event(envelope | {"choices": [], "usage": self._usage(choices)})]
        usages = ({"usage": self._usage([choice]), "timings": {"predicted_n": choice.tokens}} for choice in choices)
        return [end + _event(envelope | {"choices": []} | usage) for end, usage in zip(ends, usages, strict=True)]

    def _envelope(self, serial: int, kind: str) -> dict[str, Any]:
        prefix = "chatcmpl" if self.chat else "cmpl"
        return {"id": f"{prefix}-{serial}", "object": kind, "created": 0, "model": self.body["model"]}

    def _usage(self, choices: Sequence[SimulatedAnswer]) -> dict[str, int]:
        counted = choices[:1] if self.count_one else choices
        before, after = len(self.prompt.split()), sum(choice.tokens for choice in counted)
        return {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after}

    def _chat_tokens(self, choice: SimulatedAnswer) -> list[dict[str, Any]]:
        words, top_count = split_tokens(choice.text), self.body.get("top_logprobs") or 0
        tokens: list[dict[str, Any]] = [
            {"token": word, "logprob": value, "top_logprobs": [{"token": word, "logprob": value}] * min(1, top_count)}
            for word, value in zip(words, draw_logprobs(choice.noise, len(words), choice.bits), strict=True)
        ]
        if choice.slot:
            candidates = [{"token": token, "logprob": value} for token, value in choice.slot]
            (drawn,) = (candidate for candidate in candidates if candidate["token"] == words[0])
            tokens[0] = {**drawn, "top_logprobs": candidates[:top_count]}
        return tokens

    def _chat_choice(self, index: int, choice: SimulatedAnswer) -> dict[str, Any]:
        with_logprobs = self.body.get("logprobs") is True and choice.scored
        logprobs = {"content": self._chat_tokens(choice)} if with_logprobs else None
        message = {"role": "assistant", "content": choice.text}
        if choice.reasoning:
            message["reasoning_content"] = choice.reasoning
        return {"index": index, "message": message, "finish_reason": choice.finish_reason, "logprobs": logprobs}

    def _text_choice(self, index: int, choice: SimulatedAnswer) -> dict[str, Any]:
        text, logprobs = choice.text, None
        if self.body.get("echo") is True:
            text = self.prompt + text
        if isinstance(self.body.get("logprobs"), int):
            before = draw_prompt_logprobs(self.prompt, self.prompt_bits) if self.body.get("echo") is True else []
            logprobs = {"token_logprobs": [*before, *draw_logprobs(choice.noise, choice.tokens, choice.bits)]}
        return {"index": index, "text": text, "finish_reason": choice.finish_reason, "logprobs": logprobs}

    def _deltas(self, index: int, choice: SimulatedAnswer, pieces: int) -> Iterator[dict[str, Any]]:
        """A choice as one event per piece; split at words if they have log-probabilities."""
        tokens = self._chat_tokens(choice) if self.body.get("logprobs") is True and choice.scored else None
        words = None if tokens is None else split_tokens(choice.text)
        length = len(choice.text if words is None else words)
        for piece in range(pieces):
            start, end = length * piece // pieces, length * (piece + 1) // pieces
            text = choice.text[start:end] if words is None else "".join(words[start:end])
            reason = choice.finish_reason if piece == pieces - 1 else None
            part: dict[str, Any] = {"index": index, "finish_reason": reason}
            if not self.chat:
                yield part | {"text": text}
                continue
            if tokens is not None:
                part["logprobs"] = {"content": tokens[start:end]}
            delta = {"content": text} | ({"role": "assistant"} if piece == 0 else {})
            if choice.reasoning and piece == 0:
                delta["reasoning_content"] = choice.reasoning
            yield part | {"delta": delta}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


MAX_N = 128
PLAIN_FORMAT = {"type": "text"}
"""The `response_format` of a reply without one."""
TINY = "Say OK."
"""A prompt of health checks."""

_TEXT = "/v1/completions"


class BadRequest(Exception):
    """An invalid request; retries fail as well."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def _error(status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None) -> ApiReply:
    return json_reply(
        {"error": {"message": message, "type": "simulated", "param": None, "code": code}}, status, headers
    )


def _integer(body: dict[str, Any], name: str, low: int, high: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadRequest(400, f"{name} must be an integer from {low} to {high}, but got {value!r}")
    return value


def _prompt(body: dict[str, Any], chat: bool) -> str:
    """The text that should contain the question's id."""
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
    """Answers requests; `now` returns the seconds since the server started."""

    def __init__(
        self,
        respondent: Respondent,
        faults: Faults,
        now: Callable[[], float],
        places: ServingSlots | None = None,
        judge: SimulatedJudge | None = None,
        habits: BatchHabits | None = None,
        verifier: SimulatedVerifier | None = None,
    ) -> None:
        self._judge = judge
        self._verifier = verifier
        self._respondent = respondent
        self._faults = faults
        self._now = now
        self._places = places
        self._attempts: Counter[object] = Counter()
        self._serial = count()
        self.batches = BatchApi(habits or BatchHabits(), self._complete, now)
        self.counts: Counter[str] = Counter()
        """Numbers of requests by outcome: `answered`, the name of a fault, or `rejected`."""

    def handle(self, method: str, path: str, body: bytes = b"") -> ApiReply:
        """The reply to any request."""
        if path in (CHAT, _TEXT):
            if method != "POST":
                return _error(405, f"{path} takes POST")
            return self._completion(path == CHAT, body)
        if path == "/health":
            return whole_reply(b"", 503 if self._is(self._faults.stuck) else 200)
        if path == "/v1/models":
            owner = "llamacpp" if self._faults.count_one else "simulated"
            graders = ((JUDGE, self._judge), (VERIFIER, self._verifier))
            served = (*self._respondent.world.models, *(name for name, grader in graders if grader is not None))
            data = [{"id": model, "object": "model", "owned_by": owner} for model in served]
            return json_reply({"object": "list", "data": data})
        if path == "/metrics":
            return whole_reply(self._metrics(), kind="text/plain; version=0.0.4")
        return self.batches.handle(method, path, body) or _error(404, f"{path} does not exist")

    def _metrics(self) -> bytes:
        lines = ["# TYPE simulate_requests_total counter"]
        lines += [f'simulate_requests_total{{result="{name}"}} {n}' for name, n in sorted(self.counts.items())]
        if self._places is not None:
            for name, n in (("running", self._places.running), ("waiting", self._places.waiting)):
                lines.append(f"# TYPE vllm:num_requests_{name} gauge")
                lines.append(f'vllm:num_requests_{name}{{engine="0",model_name="simulated"}} {n:.1f}')
        return ("\n".join(lines) + "\n").encode()

    def _is(self, windows: tuple[TimeWindow, ...]) -> bool:
        return any(window.holds(self._now()) for window in windows)

    # -- one completion ------------------------------------------------------------------------------------------

    def _completion(self, chat: bool, raw: bytes) -> ApiReply:
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
            wait = {"Retry-After": f"{self._faults.retry_after:g}"}
            return _error(429, "too many requests", "rate_limit_exceeded", wait)
        if fault is Fault.SERVER_ERROR:
            return _error(500, "the engine stumbled")
        if fault is Fault.RESET:
            return ApiReply((), reset_after=seconds / 2.0)
        shape = self._shape(body, prompt, chat)
        if body.get("stream") is True:
            stream = shape.stream(next(self._serial), choices, seconds, hang=fault is Fault.HANG)
            return replace(stream, sequences=sequences)
        if fault is Fault.HANG:
            return ApiReply((), ends=False)
        body = orjson.dumps(shape.payload(next(self._serial), choices))
        return ApiReply(((seconds, body),), sequences=sequences)

    @property
    def _seconds(self) -> float:
        """Seconds until a verdict is sent."""
        return self._respondent.world.latency.median

    def _complete(self, path: str, raw: bytes) -> tuple[int, dict[str, Any]]:
        """Status and body for a request in a batch, without connection faults."""
        body = orjson.loads(raw)
        try:
            prompt = _prompt(body, path == CHAT)
            choices = self._choices(body, prompt)
        except BadRequest as error:
            return error.status, {"error": {"message": str(error), "type": "simulated", "code": error.code}}
        return 200, self._shape(body, prompt, path == CHAT).payload(next(self._serial), choices)

    def _shape(self, body: dict[str, Any], prompt: str, chat: bool) -> ResponseShape:
        needs_prompt_bits = "prompt_logprobs" in body or body.get("echo") is True
        bits = self._respondent.prompt_bits(prompt) if needs_prompt_bits else None
        return ResponseShape(body, prompt, chat, self._faults.count_one, bits)

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

    def _choices(self, body: dict[str, Any], prompt: str) -> list[SimulatedAnswer]:
        model = body.get("model")
        judge = self._judge if model == JUDGE else None
        verifier = self._verifier if model == VERIFIER else None
        is_grader = judge is not None or verifier is not None
        if not isinstance(model, str) or not (is_grader or self._respondent.serves(model)):
            raise BadRequest(404, f"the model {model!r} does not exist", "model_not_found")
        limit = _integer(body, "max_completion_tokens", 1, 2**31)
        limit = limit or _integer(body, "max_tokens", 0, 2**31)
        seed = _integer(body, "seed", -(2**63), 2**63 - 1)
        if seed is None:
            seed = next(self._serial)
        answers = _integer(body, "n", 1, MAX_N) or 1
        if self._faults.ignore_n:
            answers = 1
        if judge is not None:
            if body.get("response_format", PLAIN_FORMAT) != PLAIN_FORMAT and not judge.structured:
                raise BadRequest(400, "response_format is not supported by this engine")
            replies = [judge.reply(prompt, seed + child) for child in range(answers)]
            return [SimulatedAnswer(text, self._seconds).cut_short(limit, body.get("stop")) for text in replies]
        if verifier is not None:
            slot = verifier.slot(prompt)
            texts = [verifier.drawn(slot, prompt, seed + child) for child in range(answers)]
            unscored = SimulatedAnswer("", self._seconds, finish_reason="length", slot=slot, scored=verifier.scored)
            return [replace(unscored, text=text) for text in texts]
        try:
            question = self._respondent.question_in(prompt)
        except KeyError as error:
            raise BadRequest(400, f"{error} is not a question of the world {self._respondent.world.name}") from None
        if question is None:
            unknown = f"I am a simulated model and answer only {self._respondent.scope}."
            text = "OK." if TINY in prompt else unknown
            return [SimulatedAnswer(text, 0.0).cut_short(limit, body.get("stop"))] * answers
        drawn = [self._respondent.answer(model, question, seed + child) for child in range(answers)]
        return [answer.cut_short(limit, body.get("stop")) for answer in drawn]
