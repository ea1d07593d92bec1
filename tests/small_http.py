"""What the HTTP servers of tests share: a handler of JSON, and a server in a thread of its own."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

NO_HEADERS: Mapping[str, str] = {}


class JsonHandler(BaseHTTPRequestHandler):
    """One connection; what is answered is up to the class that derives from it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def asked(self) -> Any:
        """The body of the request."""
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def reply(self, body: object, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": len(content)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return


class ThreadedServer(ThreadingHTTPServer):
    """On a port of loopback; who is not let in at once would try again after a second."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


Some = TypeVar("Some", bound=ThreadedServer)


@contextmanager
def serving_in_a_thread(server: Some) -> Iterator[Some]:
    """The server, until the end of the context."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def model_list(*names: str) -> dict[str, Any]:
    """What /v1/models says."""
    return {"data": [{"id": name} for name in names]}


def completion(text: str, reason: str = "stop", usage: tuple[int, int] = (5, 4), **message: object) -> dict[str, Any]:
    """A response with one answer; `usage`: its tokens of prompt and answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": reason}
    return {"choices": [choice], "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}}
