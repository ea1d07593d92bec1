"""A model server of which a script says what it answers, in a thread of its own: for whole runs."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from small_http import JsonHandler, ThreadedServer, completion, model_list, serving_in_a_thread

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
    return completion(message.pop("content", asked.text), **message)


class Contrary(ThreadedServer):
    """It answers as it should where the script says nothing."""

    def __init__(self, script: Callable[[Asked], Reply | None], pages: Pages) -> None:
        self.script, self.pages = script, pages
        self.counts: Counter[object] = Counter()
        self.statuses: list[int] = []
        """Every status so far."""
        self.guard = threading.Lock()
        super().__init__(_Handler)


class _Handler(JsonHandler):
    server: Contrary

    def do_GET(self) -> None:
        page = self.server.pages(self.path, {name.title(): value for name, value in self.headers.items()})
        usual = Reply(200 if self.path == "/health" else 404)
        self._answer(page or (Reply(body=model_list(*MODELS)) if self.path == "/v1/models" else usual))

    def do_POST(self) -> None:
        body = self.asked()
        model, seed = body["model"], body.get("seed", 0)
        prompt = body["messages"][-1]["content"] if "messages" in body else json.dumps(body.get("input"))
        headers = {name.title(): value for name, value in self.headers.items()}
        with self.server.guard:
            key = (model, prompt, seed)
            asked = Asked(self.server.counts[model], model, prompt, seed, headers, self.server.counts[key], body)
            self.server.counts.update([model, key])
            reply = self.server.script(asked) or Reply(body=answer(asked))
            self.server.statuses.append(reply.status)
        self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        self.reply(reply.body, reply.status, reply.headers)


def listening(
    script: Callable[[Asked], Reply | None], pages: Pages = lambda path, headers: None
) -> AbstractContextManager[Contrary]:
    """The server, until the end of the context; `pages` may say what it answers to a GET, by path and headers."""
    return serving_in_a_thread(Contrary(script, pages))


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
