"""A server on the loopback address that answers by a function, and records its requests."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from small_http import JsonHandler, ThreadedServer, completion, model_list, serving_in_a_thread

AnswerRule = Callable[[str, str, int], str]
"""The text by model, question (the last line of the prompt) and seed."""


class ScriptedServer(ThreadedServer):
    """Serves every model of `models`; `answer` may be changed while it runs."""

    def __init__(self, models: tuple[str, ...], answer: AnswerRule) -> None:
        self.models, self.answer = models, answer
        self.finish_reason: AnswerRule = lambda *asked: "stop"
        """The finish reason by the same; "context" refuses the request, since it exceeds the context, and "reasoning"
        moves the text to `reasoning_content`."""
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
        text, reason = self.server.answer(*question), self.server.finish_reason(*question)
        usage = (9, len(text) // 4 + 1)
        if reason == "context":
            self.reply({"error": {"message": "maximum context length", "code": "context_length_exceeded"}}, 400)
        elif reason == "reasoning":
            self.reply(completion("", usage=usage, reasoning_content=text))
        else:
            self.reply(completion(text, reason, usage))


def scripted_server(models: tuple[str, ...], answer: AnswerRule) -> AbstractContextManager[ScriptedServer]:
    """The server, while the block runs."""
    return serving_in_a_thread(ScriptedServer(models, answer))
