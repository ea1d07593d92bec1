"""A server on the loopback address that answers by a function, and records its requests."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

AnswerRule = Callable[[str, str, int], str]
"""The text by model, question (the last line of the prompt) and seed."""


class ScriptedServer(ThreadingHTTPServer):
    """Serves every model of `models`; `answer` may be changed while it runs."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, models: tuple[str, ...], answer: AnswerRule) -> None:
        self.models, self.answer = models, answer
        self.finish_reason: AnswerRule = lambda *asked: "stop"
        """The finish reason by the same; "context" refuses the request, since it exceeds the context, and "reasoning"
        moves the text to `reasoning_content`."""
        self.requests: list[tuple[str, str, int]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ScriptedServer

    def do_GET(self) -> None:
        self._reply({"data": [{"id": name} for name in self.server.models]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = (asked["model"], asked["messages"][-1]["content"].splitlines()[-1], asked.get("seed", 0))
        self.server.requests.append(question)
        text, reason = self.server.answer(*question), self.server.finish_reason(*question)
        if reason == "context":
            self._reply({"error": {"message": "maximum context length", "code": "context_length_exceeded"}}, 400)
            return
        message = {"role": "assistant", "content": text}
        if reason == "reasoning":
            message, reason = {"role": "assistant", "content": "", "reasoning_content": text}, "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        self._reply({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": len(text) // 4 + 1}})

    def _reply(self, body: Any, status: int = 200) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def scripted_server(models: tuple[str, ...], answer: AnswerRule) -> Iterator[ScriptedServer]:
    """The server, while the block runs."""
    server = ScriptedServer(models, answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
