"""A server for tests that starts in a tenth of a second: it answers /health, and does what its arguments say.

    python serving.py PORT [WHAT ...]

`late=S`: it is ready after so many seconds; `exit=N`: it prints some lines and exits instead; `child`: it has a child
that ignores SIGTERM; `stubborn`: it ignores SIGTERM itself; `nohealth`: its health check is a 404; `says=TEXT`: it
prints the text first; `busy`: it answers 503 for ever; `endless`: no answer has an end; `sleeps`: it can be put to
sleep and woken; `dazed`: it falls asleep for good; `fails=FILE`: where there is this file, it is removed, and the
server exits; `until=FILE`: it ignores SIGTERM, says that it is deaf, and ends when there is this file, with a word;
`forgets`: it sleeps at level 2 as vLLM does, and tells at GET /answer what its weights make of a request;
`forgets=ever`: it cannot read them again.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

WHAT = dict(part.partition("=")[::2] for part in sys.argv[2:])
BEGAN = time.monotonic()


SLEEP, WEIGHTS, CACHE, CALL = "/sleep?level=2", "/wake_up?tags=weights", "/wake_up?tags=kv_cache", "/collective_rpc"


class Forgetful:
    """What vLLM has on its GPU; after level 2 weights that were not read again are any numbers."""

    def __init__(self) -> None:
        self.has_weights = self.has_cache = self.is_loaded = True

    @property
    def answer(self) -> str | None:
        if not (self.has_weights and self.has_cache):
            return None
        return "42" if self.is_loaded else "!!!!"

    def post(self, path: str, body: bytes) -> bool:
        if path == SLEEP:
            self.has_weights = self.has_cache = self.is_loaded = False
        elif path == WEIGHTS:
            self.has_weights = True
        elif path == CACHE:
            self.has_cache = True
        elif path == "/wake_up":
            self.has_weights = self.has_cache = True
        elif (
            WHAT["forgets"] != "ever"
            and path == CALL
            and self.has_weights
            and json.loads(body) == {"method": "reload_weights"}
        ):
            self.is_loaded = True
        else:
            return False
        return True


FORGETFUL = Forgetful()


class Handler(BaseHTTPRequestHandler):
    """The health check, and a version."""

    def do_GET(self) -> None:
        ready = time.monotonic() - BEGAN >= float(WHAT.get("late", "0")) and "busy" not in WHAT
        health = 404 if "nohealth" in WHAT else 200 if ready else 503
        status, body = {"/health": (health, b""), "/version": (200, b'{"version": "1.2.3"}')}.get(self.path, (404, b""))
        if self.path == "/answer":
            status, body = (503, b"") if FORGETFUL.answer is None else (200, FORGETFUL.answer.encode())
        endless = "endless" in WHAT
        self.send_response(status)
        self.send_header("Content-Length", str(10**9 if endless else len(body)))
        self.end_headers()
        self.wfile.write(body)
        with suppress(ConnectionError):
            while endless:
                time.sleep(0.05)
                self.wfile.write(b" ")

    def do_POST(self) -> None:
        answers = {"/sleep?level=1": "sleeps" in WHAT or "dazed" in WHAT, "/wake_up": "sleeps" in WHAT}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if done := "forgets" in WHAT and FORGETFUL.post(self.path, body) or answers.get(self.path, False):
            print(self.path, flush=True)
        self.send_response(200 if done else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        if "busy" in WHAT:
            print("asked", flush=True)


def end_when_there_is(file: Path) -> None:
    while not file.exists():
        time.sleep(0.02)
    print("over", flush=True)
    os._exit(0)


def main() -> None:
    if "says" in WHAT:
        print(WHAT["says"], flush=True)
    if "stubborn" in WHAT:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "until" in WHAT:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=end_when_there_is, args=(Path(WHAT["until"]),)).start()
        print("deaf", flush=True)
    if "child" in WHAT:
        ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('child', flush=True); "
        subprocess.Popen([sys.executable, "-S", "-c", ignore + "time.sleep(600)", __file__, sys.argv[1]])
    if "fails" in WHAT and (trouble := Path(WHAT["fails"])).exists():
        trouble.unlink()
        sys.exit("no memory is left")
    if "exit" in WHAT:
        print("\n".join(f"loading layer {number}" for number in range(40)))
        print("\x1b[31mCUDA out of memory\x1b[0m key sk-abcdefgh12345678abcd", flush=True)
        sys.exit(int(WHAT["exit"]))
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
