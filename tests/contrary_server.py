"""A model server of which a script says what it answers, in a thread of its own: for whole runs."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

MODELS = ("ada", "bob")
QUESTIONS = 6


@dataclass(frozen=True)
class Asked:
    """One request for an answer."""

    number: int
    """How many requests of its model came before."""
    model: str
    prompt: str
    seed: int
    headers: Mapping[str, str]
    repeated: int
    """How often it has come before."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The whole request."""

    @property
    def text(self) -> str:
        """The answer that it deserves."""
        right = self.seed % 8 != 0 if self.model == "ada" else self.seed % 8 == 0
        return f"The answer is {7 if right else 1}."


@dataclass(frozen=True)
class Reply:
    """What comes back."""

    status: int = 200
    body: bytes | dict[str, Any] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Pages = Callable[[str, Mapping[str, str]], Reply | None]


def answer(asked: Asked, **message: Any) -> dict[str, Any]:
    """The body of an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": asked.text, **message}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 4}}


class Contrary(ThreadingHTTPServer):
    """It answers as it should where the script says nothing."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, script: Callable[[Asked], Reply | None], pages: Pages) -> None:
        self.script, self.pages = script, pages
        self.counts: Counter[object] = Counter()
        self.statuses: list[int] = []
        """Every status so far."""
        self.guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Contrary

    def do_GET(self) -> None:
        page = self.server.pages(self.path, {name.title(): value for name, value in self.headers.items()})
        models = {"data": [{"id": name} for name in MODELS]}
        usual = Reply(body=models) if self.path == "/v1/models" else Reply(200 if self.path == "/health" else 404)
        self._reply(page or usual)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, seed = body["model"], body.get("seed", 0)
        prompt = body["messages"][-1]["content"] if "messages" in body else json.dumps(body.get("input"))
        headers = {name.title(): value for name, value in self.headers.items()}
        with self.server.guard:
            key = (model, prompt, seed)
            asked = Asked(self.server.counts[model], model, prompt, seed, headers, self.server.counts[key], body)
            self.server.counts.update([model, key])
            reply = self.server.script(asked) or Reply(body=answer(asked))
            self.server.statuses.append(reply.status)
        self._reply(reply)

    def _reply(self, reply: Reply) -> None:
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {**reply.headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def listening(script: Callable[[Asked], Reply | None], pages: Pages = lambda path, headers: None) -> Iterator[Contrary]:
    """The server, until the end of the context; `pages` may say what it answers to a GET, by path and headers."""
    with Contrary(script, pages) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def write_config(folder: Path, server: Contrary, **changes: Any) -> Path:
    """A configuration for it, with its questions."""
    rows = [{"id": f"q{i}", "prompt": f"Question {i}: how much is it?", "answer": "7"} for i in range(QUESTIONS)]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {
        "questions": "questions.jsonl",
        "models": [{"name": name, "base_url": server.base_url} for name in MODELS],
        "sampling": {"temperature": 0.6, "max_tokens": 500},
        "grader": "numeric",
        "trials": {"min": 4, "max": 4},
        "concurrency": 4,
        "stopping": {"on_alarm": "never"},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings | changes))
    return path
