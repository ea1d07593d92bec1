"""A connection that is reset after the server has generated the answer: its cost counts, and is reported."""

import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import pytest
from live_runs import MODELS, Site, kill, trials_in, wait_until
from patient_time import HANGS
from small_http import JsonHandler, ThreadedServer, completion, model_list, serving_in_a_thread
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.notes import AnswersLost, events_of_kind
from adaptive_eval.report.lines import several
from adaptive_eval.report.reader import RunReader

PROMPT, COMPLETION = 40, 90
CAP = 120_000
"""Far from reached when the server holds, however many answers are lost by then."""
RESETS = 0.15
HELD_AFTER = 150
RESET_AT_ONCE = struct.pack("ii", 1, 0)


class Meter(ThreadedServer):
    """Generates every answer in full, counts it, and resets some of the connections before the answer is out; after
    so many it waits until it is let go on."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.begun, self.generated, self.waiting, self.held_after, self.resets = 0, 0, 0, HELD_AFTER, RESETS
        self.holds, self.go_on = threading.Event(), threading.Event()
        self.attempts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def charge(self, asked: bytes) -> bool:
        """Count one more generation; whether the answer is to come through."""
        with self.lock:
            self.begun += 1
            held = self.begun > self.held_after
            self.waiting += held
        if held:
            self.holds.set()
            self.go_on.wait()
        with self.lock:
            self.waiting -= held
            self.generated += PROMPT + COMPLETION
            self.attempts[key := blake2b(asked).hexdigest()] += 1
            draw = blake2b(f"{key} {self.attempts[key]}".encode(), digest_size=4).digest()
        return int.from_bytes(draw, "big") / 2**32 >= self.resets

    def let_go_on(self) -> None:
        """Until all that have waited are generated: whoever asked for them may be gone."""
        self.go_on.set()
        deadline = time.monotonic() + HANGS
        while self.waiting:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asked was killed, or the connection was reset."""


class _Handler(JsonHandler):
    server: Meter

    def do_GET(self) -> None:
        self.reply(model_list(*MODELS))

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        number = json.loads(asked)["seed"] % 3
        if self.server.charge(asked):
            self.reply(completion(f"It is {number}." + " so" * 80, usage=(PROMPT, COMPLETION)))
        else:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_ONCE)
            self.connection.close()
            self.close_connection = True


@pytest.fixture
def meter() -> Iterator[Meter]:
    with serving_in_a_thread(Meter()) as server:
        yield server
        server.go_on.set()


def stored(directory: Path) -> tuple[int, list[AnswersLost], int]:
    """Tokens of stored answers, events of lost answers, and the number in flight."""
    with closing(RunReader.open(directory)) as reader:
        tokens = sum(trial.cost.tokens for trial in reader.trials())
        in_flight = len(reader.log.reserved()) + sum(reader.log.in_flight().values())
        return tokens, events_of_kind(reader.events(), AnswersLost), in_flight


def loss_warnings(directory: Path) -> dict[str, str]:
    """What `report` says of each model's lost answers."""
    ended = CliRunner().invoke(app, ["report", str(directory), "--format", "json"])
    assert ended.exit_code == 0, ended.output
    warnings = json.loads((directory / "report.json").read_text())["run"]["results"]["warnings"]
    return {warning["model"]: warning["text"] for warning in warnings if warning["kind"] == "lost"}


@pytest.mark.slow
def test_answers_lost_to_resets_and_a_kill_count_and_are_reported(tmp_path: Path, meter: Meter) -> None:
    site = Site.make(tmp_path, f"http://127.0.0.1:{meter.server_port}/v1")
    config = site.write(
        budget={"tokens": CAP},
        trials={"min": 2, "max": 60, "optimize": "cost"},
        sampling={"temperature": 0.6, "max_tokens": 100},
        stopping={"rule": "published", "options": {"threshold": 50}, "on_alarm": "never"},
    )
    process = site.start(config, "--run-dir", str(site.directory()))
    wait_until(lambda: meter.holds.is_set() and trials_in(site.directory()) >= 60, process)
    kill(process)
    tokens, lost, in_flight = stored(site.directory())
    assert lost and not any(event.killed for event in lost), "resets are written down as they happen"
    worst = lost[0].tokens // lost[0].answers
    assert tokens + sum(event.tokens for event in lost) + in_flight * worst >= meter.generated
    assert loss_warnings(site.directory()).keys() == {event.model for event in lost}
    meter.let_go_on()
    ended = site.run(config)
    assert ended.exit_code == ExitCode.SPENT, ended.output
    tokens, lost, in_flight = stored(site.directory())
    assert in_flight == 0
    assert any(event.killed for event in lost)
    assert meter.generated <= tokens + sum(event.tokens for event in lost) <= CAP
    for name, text in loss_warnings(site.directory()).items():
        mine = [event for event in lost if event.model == name]
        assert text.startswith(
            f"{several(sum(event.answers for event in mine), 'answer')} requested, but never received"
        )
        assert f"{sum(event.tokens for event in mine):,} tokens" in text


def test_answers_lost_to_a_kill_are_reported_without_caps_too(tmp_path: Path, meter: Meter) -> None:
    site = Site.make(tmp_path, f"http://127.0.0.1:{meter.server_port}/v1")
    config = site.write(trials={"min": 2, "max": 12}, stopping={"on_alarm": "never"})
    meter.resets = 0.0
    slots = meter.held_after = 8  # few enough that each model has as many requests left as slots
    process, flying = site.start(config, "--run-dir", str(site.directory())), slots * len(MODELS)
    wait_until(lambda: meter.waiting == flying and trials_in(site.directory()) == slots, process)
    wait_until(lambda: stored(site.directory())[2] == flying, process)
    kill(process)
    meter.let_go_on()
    ended = site.run(config)
    assert ended.exit_code in (ExitCode.REACHED, ExitCode.SPENT), ended.output
    tokens, lost, in_flight = stored(site.directory())
    assert (in_flight, sum(event.answers for event in lost if event.killed)) == (0, flying)
    assert tokens + sum(event.tokens for event in lost) == meter.generated
    cost = site.results()["cost"]
    assert cost["tokens"] + sum(row["tokens"] for row in cost["beside"]) == meter.generated
    assert not loss_warnings(site.directory()), "it is a cost, and nothing to be warned of"
