"""A server on the loopback address that answers by a function, and records its requests; and runs against it."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from pathlib import Path
from typing import Any

import yaml
from command_line import Codes, typed
from small_http import JsonHandler, ThreadedServer, completion, model_list, serving_in_a_thread
from stored_runs import events_in
from typer.testing import Result

from adaptive_eval.notes import AlarmRaised

AnswerRule = Callable[[str, str, int], str]
"""The text by model, question (the last line of the prompt) and seed."""


class ScriptedServer(ThreadedServer):
    """Serves every model of `models`; `answer` may be changed while it runs."""

    def __init__(self, models: tuple[str, ...], answer: AnswerRule) -> None:
        self.models, self.answer = models, answer
        self.finish_reason: AnswerRule = lambda *asked: "stop"
        """The finish reason by the same; "context" refuses the request, since it exceeds the context, and "reasoning"
        moves the text to `reasoning_content`."""
        self.response_id: AnswerRule = lambda *asked: ""
        """The id of the response by the same; by default it has none."""
        self.requests: list[tuple[str, str, int]] = []
        super().__init__(_Handler)


class _Handler(JsonHandler):
    server: ScriptedServer

    def do_GET(self) -> None:
        self.reply(model_list(*self.server.models))

    def do_POST(self) -> None:
        asked = self.asked()
        question = (asked["model"], asked["messages"][-1]["content"].splitlines()[-1], asked.get("seed", 0))
        self.server.requests.append(question)
        model, line, seed = question
        texts = [self.server.answer(model, line, seed + more) for more in range(asked.get("n", 1))]
        text, reason = texts[0], self.server.finish_reason(*question)
        usage = (9, len(text) // 4 + 1)
        if reason == "context":
            self.reply({"error": {"message": "maximum context length", "code": "context_length_exceeded"}}, 400)
        elif reason == "reasoning":
            self.reply(completion("", usage=usage, reasoning_content=text))
        else:
            reply = completion(text, reason, usage)
            for index, other in enumerate(texts[1:], 1):
                reply["choices"] += [choice | {"index": index} for choice in completion(other, reason)["choices"]]
            self.reply(reply | {"id": self.server.response_id(*question)})


def scripted_server(models: tuple[str, ...], answer: AnswerRule) -> AbstractContextManager[ScriptedServer]:
    """The server, while the block runs."""
    return serving_in_a_thread(ScriptedServer(models, answer))


class ScriptedPlace:
    """A folder with a benchmark for one server: each question names the number that is right."""

    def __init__(self, folder: Path, server: ScriptedServer, questions: int, **usual: object) -> None:
        """`usual`: settings that its runs have unless they are given others."""
        self.folder, self.server, self.run_dir, self._usual = folder, server, folder / "run", usual
        self.write_questions(questions)

    def write_questions(self, number: int) -> None:
        rows = [{"id": f"q{n}", "prompt": f"number {n + 10}", "answer": str(n + 10)} for n in range(number)]
        (self.folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def config(self, models: Sequence[str | dict[str, str]] = (), **changes: object) -> Path:
        address = {"base_url": self.server.base_url}
        named = [{"name": model, **address} if isinstance(model, str) else model for model in models]
        settings = {
            "questions": "questions.jsonl",
            "models": named or [{"name": name, **address} for name in self.server.models],
            "prompt": "{prompt}",
            "grader": "numeric",
        }
        path = self.folder / "run.yaml"
        path.write_text(yaml.safe_dump(settings | self._usual | changes))
        return path

    def later(self, name: str = "later") -> "ScriptedPlace":
        """The same place, where the run has another directory."""
        place = copy(self)
        place.run_dir = self.folder / name
        return place

    def run(self, *options: str, code: Codes = None, **changes: Any) -> Result:
        config = self.config(**changes)
        return typed("run", config, "--run-dir", self.run_dir, "--display", "plain", *options, code=code)

    def report(self, form: str) -> str:
        return typed("report", self.run_dir, "--format", form, "-o", "-").stdout

    @property
    def results(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.run_dir / "results.json").read_bytes())
        return document

    def warnings(self) -> list[tuple[str, str | None]]:
        return [(warning["kind"], warning["model"]) for warning in self.results["warnings"]]

    def alarms(self) -> list[AlarmRaised]:
        return events_in(self.run_dir, AlarmRaised)
