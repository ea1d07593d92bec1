"""A model server that knows the truth, counts what it serves, and makes trouble as a world says.

It needs the standard library alone, so that a run can start it as a server of its own:

    python model_server.py WORLD LEDGER PORT

The ledger has a line for each answer, written when the last byte of it is sent.
"""

import json
import os
import re
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from world import CONTEXT_ERROR, Drawn, Ledger, World, padded, share

JUDGE, VERIFIER = "judge", "verifier"
LABELS = ("A", "B", "C")
CUT_TOKENS = 64
TINY = "Say OK."
"""What a run asks to see whether a model is there."""
QUESTION = re.compile(r"\[([a-z]+\d+)\]")
ANSWER = re.compile(r"The answer is (\d+)")
CASE = re.compile(r"Case ([\w.-]+)/([a-z]+\d+)/(\d+)\.")


class ModelServer:
    """Serves all models of a world, a judge and a verifier, on a port of the loopback address."""

    def __init__(self, world: World, ledger: Ledger, port: int = 0) -> None:
        self.world = world
        self.ledger = ledger
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.sending = threading.Lock()
        """Held from when an answer is sent until its line is written: whoever has it may end this process at once."""
        self.answered: Counter[str] = Counter()
        """Different answers begun, by model."""
        self.attempts: Counter[tuple[str, str, int, float]] = Counter()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        for line in ledger.lines():
            if line["what"] == "answer":
                self.begin((line["model"], line["question"], line["seed"], line["temperature"]))
        server = self

        class Handler(_Handler):
            serves = server

        self._http = _HttpServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def begin(self, asked: tuple[str, str, int, float]) -> None:
        """Count an attempt at an answer of a model."""
        self.attempts[asked] += 1
        self.answered[asked[0]] += self.attempts[asked] == 1

    def settle(self) -> None:
        """Wait until the ledger has a line for whatever was sent."""
        with self.sending:
            pass

    def __enter__(self) -> "ModelServer":
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()

    def serve_forever(self) -> None:
        self._http.serve_forever()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients are killed; whatever else is wrong is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Refused(Exception):
    """A request that gets an error."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Hangs(Exception):
    """A request that gets no answer."""


class _Choice(NamedTuple):
    """An answer as it is sent."""

    text: str
    reason: str
    tokens: int
    line: dict[str, Any]
    """Its line of the ledger."""
    labels: tuple[float, ...] = ()
    """Log-probabilities of a verifier's labels."""
    doubled: str = ""
    """What comes twice: the `response`, or this `choice` in it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    serves: ModelServer
    previous: Any = None
    """The newest answer on this connection, as it was sent."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        world, path = self.serves.world, self.path.partition("?")[0]
        if path == "/health":
            self._send(200, b"")
        elif path == "/v1/models":
            names = (*world.models, JUDGE, VERIFIER)
            self._json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
        elif path.startswith("/v1/batches"):
            name = path.removeprefix("/v1/batches").strip("/")
            listed = {"object": "list", "data": [*reversed(self.serves.batches.values())], "has_more": False}
            self._json(200, self.serves.batches[name] if name else listed)
        elif path.startswith("/v1/files/"):
            self._send(200, self.serves.files[path.split("/")[3]])
        else:
            self._json(404, {"error": {"message": f"there is nothing at {path}"}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            if self.path == "/v1/files":
                self._take_file(raw)
            elif self.path == "/v1/batches":
                self._create_batch(json.loads(raw))
            elif self.path.startswith("/v1/batches/"):
                self._json(200, self.serves.batches[self.path.split("/")[3]])
            else:
                self._complete(self.path.endswith("/chat/completions"), json.loads(raw))
        except Refused as error:
            self._json(error.status, {"error": {"message": str(error), "type": "server", "code": error.code}})
        except Hangs:
            self._wait_for_the_client_to_go()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # -- answers -----------------------------------------------------------------------------------------------------

    def _complete(self, chat: bool, body: dict[str, Any]) -> None:
        choices = self._choices(chat, body)
        time.sleep(self.serves.world.seconds)
        payload = self._payload(chat, body, choices)
        is_replaced = choices[0].doubled == "response" and self.previous is not None
        if is_replaced:  # by a proxy that sends a response twice
            payload = self.previous
        elif choices[0].line.get("what") == "answer":
            self.previous = payload
        with self.serves.sending:
            try:
                if body.get("stream"):
                    self._stream(chat, payload)
                else:
                    self._json(200, payload)
            except (BrokenPipeError, ConnectionResetError):
                self._note(choices, sent=False)
                raise
            self._note(choices, sent=not is_replaced)

    def _note(self, choices: Iterable[_Choice], *, sent: bool) -> None:
        for choice in choices:
            if choice.line:
                self.serves.ledger.write(**choice.line, sent=sent)

    def _choices(self, chat: bool, body: dict[str, Any]) -> list[_Choice]:
        server, world, model = self.serves, self.serves.world, body["model"]
        contents = [message["content"] for message in body["messages"]] if chat else [body["prompt"]]
        prompt = "\n".join(contents)
        key = blake2b(self._credentials().removeprefix("Bearer ").encode(), digest_size=8).hexdigest()
        spent = {"prompt_tokens": len(prompt.split()), "key": key}
        if model in (JUDGE, VERIFIER):
            return [self._verdict(model, body, prompt, spent)]
        if model not in world.models:
            raise Refused(404, f"the model {model!r} does not exist", "model_not_found")
        asked = QUESTION.findall(prompt)
        if not asked:
            server.ledger.write(what="probe", model=model, prompt=prompt[:200])
            return [_Choice("OK.", "stop", 2, {})] * int(body.get("n") or 1)
        question, temperature = asked[-1], float(body.get("temperature", 1.0))
        seed, count = int(body["seed"]), int(body.get("n") or 1)
        with server.lock:
            attempt = server.attempts[(model, question, seed, temperature)]
            number = server.answered[model]
            for at in range(count):
                server.begin((model, question, seed + at, temperature))
        request = {"what": "answer", "model": model, "question": question, "temperature": temperature, **spent}
        self._trouble_on_the_way(request, seed, attempt)
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        if world.answers == "context" and model == world.troubled and number >= world.middle:
            for at in range(count):
                drawn = world.answer(model, question, seed + at, temperature)
                server.ledger.write(**request, seed=seed + at, outcome="context", sent=True, right=drawn.right)
            raise Refused(400, CONTEXT_ERROR, "context_length_exceeded")
        choices = [
            self._troubled(world.answer(model, question, seed + at, temperature), request, number + at, limit)
            for at in range(count)
        ]
        for choice in choices[1:]:
            choice.line["prompt_tokens"] = 0  # it is read once
        if world.wire == "doubled" and attempt == 0:
            chance = share("doubled", model, question, seed)
            doubled = "response" if chance < 0.06 else "choice" if chance < 0.12 else ""
            choices[0] = choices[0]._replace(doubled=doubled)
        return choices

    def _credentials(self) -> str:
        return self.headers.get("Authorization") or self.headers.get("X-Api-Key") or ""

    def _trouble_on_the_way(self, request: dict[str, Any], seed: int, attempt: int) -> None:
        world, chance = self.serves.world, share("wire", request["model"], request["question"], seed, attempt)
        failed = request | {"seed": seed, "sent": False}
        if world.echo == "errors" and chance > 0.92:
            self.serves.ledger.write(**failed, outcome="error")
            raise Refused(500, f"upstream refused {self._credentials()}")
        if world.wire == "errors" and chance < 0.05:
            self.serves.ledger.write(**failed, outcome="error")
            raise Refused(500, "the engine stumbled")
        if world.wire == "hangs" and attempt == 0 and chance < 0.02:
            self.serves.ledger.write(**failed, outcome="hung")
            raise Hangs

    def _troubled(self, drawn: Drawn, request: dict[str, Any], number: int, limit: int | None) -> _Choice:
        """An answer as the world has it: perhaps cut or empty."""
        world = self.serves.world
        text, reason, tokens, outcome = drawn.text, "stop", drawn.tokens, "served"
        if world.echo == "answers" and share("echo", drawn.model, drawn.question, drawn.seed) < 0.1:
            text = f"I was sent {self._credentials()}. {text}"
        if drawn.model == world.troubled and number >= world.middle:
            if world.answers == "cut" and share("cut", drawn.question, drawn.seed) < 0.95:
                tokens = limit or CUT_TOKENS
                text, reason, outcome = (
                    f"Case {drawn.model}/{drawn.question}/{drawn.seed}. Let me think",
                    "length",
                    "cut",
                )
            elif world.answers == "empty":
                text, tokens, outcome = "", 1, "empty"
        text = padded(text, tokens)
        line = request | {"seed": drawn.seed, "outcome": outcome, "right": drawn.right, "completion_tokens": tokens}
        return _Choice(text, reason, tokens, line)

    def _verdict(self, model: str, body: dict[str, Any], prompt: str, spent: dict[str, Any]) -> _Choice:
        """What a judge or a verifier says: what the answer's text has, beside what its question wants."""
        cases, answers = CASE.findall(prompt), ANSWER.findall(prompt)
        right = bool(cases and answers) and answers[-1] == self.serves.world.keys[cases[-1][1]]
        line = {"what": "verdict", "model": model, "case": list(cases[-1]) if cases else None, "right": right, **spent}
        if model == VERIFIER:
            scores = (-0.02, -4.5, -5.0) if right else (-4.5, -0.02, -5.0)
            labels = scores if cases else (-1.2, -1.1, -1.0)
            return _Choice(LABELS[labels.index(max(labels))], "length", 1, line | {"completion_tokens": 1}, labels)
        word = "correct" if right else "wrong"
        text = json.dumps({"reasoning": "It was compared.", "verdict": word})
        return _Choice(text, "stop", 9, line | {"completion_tokens": 9})

    def _payload(self, chat: bool, body: dict[str, Any], choices: list[_Choice]) -> dict[str, Any]:
        written = []
        for index, choice in enumerate(choices):
            entry: dict[str, Any] = {"index": index, "finish_reason": choice.reason}
            if chat:
                entry["message"] = {"role": "assistant", "content": choice.text}
            else:
                entry["text"] = choice.text
            if choice.labels:
                tops = [{"token": label, "logprob": value} for label, value in zip(LABELS, choice.labels, strict=True)]
                tops.sort(key=lambda top: -top["logprob"])
                entry["logprobs"] = {"content": [{**tops[0], "top_logprobs": tops}]}
            written.append(entry)
        if choices[0].doubled == "choice" and len(choices) > 1:
            written[-1] = written[0]  # one in the place of another
        elif choices[0].doubled == "choice":
            written.append(written[0] | {"index": 1})  # one that nobody asked for
        before = choices[0].line.get("prompt_tokens", 3)
        after = sum(choice.tokens for choice in choices)
        return {
            "id": f"cmpl-{time.monotonic_ns()}",
            "object": "chat.completion" if chat else "text_completion",
            "created": 0,
            "model": body["model"],
            "choices": written,
            "usage": {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after},
        }

    def _stream(self, chat: bool, payload: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in _events(chat, payload):
            data = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    # -- batches -----------------------------------------------------------------------------------------------------

    def _take_file(self, raw: bytes) -> None:
        boundary, _, remainder = raw.partition(b"\r\n")
        parts = (part.partition(b"\r\n\r\n") for part in (b"\r\n" + remainder).split(b"\r\n" + boundary))
        (content,) = [content.removesuffix(b"\r\n") for head, _, content in parts if b"filename=" in head]
        name = f"file-{time.monotonic_ns()}"
        self.serves.files[name] = content
        self._json(200, {"id": name, "object": "file", "purpose": "batch"})

    def _create_batch(self, body: dict[str, Any]) -> None:
        """A batch that has ended when its creation is answered."""
        name, results = f"batch_{time.monotonic_ns()}", []
        chat = body["endpoint"].endswith("/chat/completions")
        requests = [json.loads(line) for line in self.serves.files[body["input_file_id"]].splitlines()]
        for request in requests:
            try:
                choices = self._choices(chat, request["body"])
                reply: dict[str, Any] = {"status_code": 200, "body": self._payload(chat, request["body"], choices)}
                self._note(choices, sent=True)
            except Refused as error:
                reply = {"status_code": error.status, "body": {"error": {"message": str(error), "code": error.code}}}
            results.append({"id": name, "custom_id": request["custom_id"], "response": reply, "error": None})
            if self.serves.world.wire == "doubled" and share("line", request["custom_id"]) < 0.1:
                results.append(results[-1])
        output = f"file-out-{name}"
        self.serves.files[output] = b"".join(json.dumps(line).encode() + b"\n" for line in results)
        self.serves.batches[name] = {
            "id": name,
            "object": "batch",
            "endpoint": body["endpoint"],
            "status": "completed",
            "created_at": int(time.time()),
            "metadata": body.get("metadata"),
            "request_counts": {"total": len(requests), "completed": len(requests), "failed": 0},
            "output_file_id": output,
            "error_file_id": None,
        }
        self._json(200, self.serves.batches[name])

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def _json(self, status: int, content: Mapping[str, Any]) -> None:
        self._send(status, json.dumps(content).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _wait_for_the_client_to_go(self) -> None:
        while not self.serves.closing.is_set():
            ready, _, _ = select.select([self.connection], [], [], 0.1)
            if ready and not self.connection.recv(1024):
                break
        self.close_connection = True


def _events(chat: bool, payload: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
    """A response piece by piece."""
    envelope = {key: payload[key] for key in ("id", "object", "created", "model")}
    for choice in payload["choices"]:
        text = choice["message"]["content"] if chat else choice["text"]
        for number, piece in enumerate((text[: len(text) // 2], text[len(text) // 2 :])):
            part: dict[str, Any] = {
                "index": choice["index"],
                "finish_reason": choice["finish_reason"] if number else None,
            }
            part |= {"delta": {"role": "assistant", "content": piece}} if chat else {"text": piece}
            if number == 0 and "logprobs" in choice:
                part["logprobs"] = choice["logprobs"]
            yield envelope | {"choices": [part]}
    yield envelope | {"choices": [], "usage": payload["usage"]}
    yield "[DONE]"


def main() -> None:
    server = ModelServer(World.read(Path(sys.argv[1])), Ledger(Path(sys.argv[2])), int(sys.argv[3]))

    def end(*_: object) -> None:
        server.sending.acquire(timeout=1.0)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    server.serve_forever()


if __name__ == "__main__":
    main()
