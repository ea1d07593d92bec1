"""Who is told of a run, and how: a real command, a real webhook, and what fails about either."""

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

import pytest
from live_runs import Site
from patient_time import HANGS

from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import NotifyConfig
from adaptive_eval.errors import ConfigError, ExitCode
from adaptive_eval.record.results_file import RESULTS_FILE
from adaptive_eval.record.status import CurrentTraffic, Status
from adaptive_eval.running.notify import Notifier, open_notifier
from adaptive_eval.store import AlarmRaised, ModelSetAside, ModelSettled, ReplicaLost, RunReader, ServersNoticed

Json = dict[str, Any]


@dataclass
class Hook:
    """A webhook on the loopback: what it was sent, and what it answers."""

    posted: "Queue[Json]" = field(default_factory=Queue)
    paths: list[str] = field(default_factory=list)
    status: int = 200
    url: str = ""


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/json"
            made.paths.append(self.path)
            made.posted.put(json.loads(body))  # before the answer: who has been answered has been heard
            self.send_response(made.status)
            self.send_header("Location", f"{made.url}-elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def posted(hook: Hook) -> Json:
    return hook.posted.get(timeout=HANGS)


COMMAND = """#!{python}
import json, os, sys
with open("told.json", "a") as file:
    file.write(json.dumps({{"body": json.load(sys.stdin), "names": sorted(os.environ)}}) + "\\n")
"""


def test_a_run_that_ends_tells_a_webhook_and_a_command_without_keys(
    site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = site.folder / "tell"
    program.write_text(COMMAND.format(python=sys.executable))
    program.chmod(0o700)
    monkeypatch.setenv("HOOK_URL", hook.url)
    monkeypatch.setenv("SOME_API_KEY", "one-that-nobody-else-may-see")
    notify = {"command": ["./tell"], "webhook_env": "HOOK_URL"}
    ahead = {"favour": "time"}  # answers that no look has judged are in the scores
    assert site.run(site.write(notify=notify, trials=ahead)).exit_code == ExitCode.REACHED
    body = posted(hook)
    assert body["name"] == "run" and body["event"] == "end" and body["status"] == "finished"
    assert body["reason"].startswith("Finished") and body["leaders"][0]["name"] == "ada"
    first = json.loads((site.directory() / RESULTS_FILE).read_text())["models"][0]
    assert body["leaders"][0] == {key: first[key] for key in ("name", "score", "lo", "hi")} and body["trials"] > 0
    told = json.loads((site.folder / "told.json").read_text())
    assert told["body"] == body and not {"HOOK_URL", "SOME_API_KEY"} & set(told["names"])
    with closing(RunReader.open(site.directory())) as reader:
        assert hook.url not in str(reader.configurations())


def test_an_error_that_ends_a_run_is_told(site: Site, hook: Hook) -> None:
    models = [{"name": name, "model": f"no-{name}", "base_url": site.base_url} for name in ("ada", "bob")]
    assert site.run(site.write(models=models, notify={"webhook": hook.url})).exit_code == ExitCode.ENDPOINTS
    body = posted(hook)
    assert body["event"] == "end" and body["status"] == "stopped" and body["reason"].startswith("Stopped by an error")


@pytest.mark.parametrize(
    ("status", "notify", "said"),
    [
        (500, {}, "status 500"),
        (302, {}, "no redirect is followed"),
        (200, {"command": ["no-such-program"]}, "could not be run"),
        (200, {"command": [sys.executable, "-c", "raise SystemExit(3)"]}, "exit code 3"),
        (200, {"webhook": "http://127.0.0.1:9/hook"}, "could not be reached"),
    ],
)
def test_a_notification_that_fails_is_a_warning(site: Site, hook: Hook, status: int, notify: Json, said: str) -> None:
    hook.status = status
    result = site.run(site.write(notify={"webhook": hook.url} | notify, trials={"min": 2, "max": 2}))
    assert result.exit_code in (ExitCode.REACHED, ExitCode.SPENT) and "warning: notify: " in result.stderr
    assert said in result.stderr and "127.0.0.1" not in result.stderr and hook.paths in ([], ["/hook"])


NOTHING = Status(
    looks=0,
    standings=(),
    verdicts=Counter(),
    caps=(),
    traffic=CurrentTraffic(1, 0, 0, 1, 1),
    models=(),
    trials=0,
    new_trials=0,
    new_tokens=0,
    elapsed=0.0,
    trials_to_go=None,
)


def opened(site: Site, status: list[Status], **notify: object) -> Notifier:
    """A notifier of a run that has begun, whose status is the last of the list."""
    notifier = open_notifier(load_config(site.write(notify=notify)))
    assert notifier is not None
    notifier.opened("run", ("ada",), lambda: status[-1])
    return notifier


async def test_a_stall_is_told_once_and_again_when_something_has_come_meanwhile(site: Site, hook: Hook) -> None:
    status = [NOTHING]
    notifier = opened(site, status, webhook=hook.url, stalled_after=0.02, on=["stall"])
    first = await asyncio.to_thread(posted, hook)
    assert first["event"] == "stall" and first["status"] == "running" and "no answer has come" in first["reason"]
    status.append(replace(NOTHING, trials=1))
    assert (await asyncio.to_thread(posted, hook))["trials"] == 1
    notifier.closed()
    await asyncio.to_thread(notifier.close)
    assert hook.posted.empty()


async def test_an_alarm_is_told_once_a_model(site: Site, hook: Hook) -> None:
    notifier = opened(site, [NOTHING], webhook=hook.url, on=["alarm"])
    for event in (
        ServersNoticed("ada", "seed", "answers are alike"),
        ServersNoticed("ada", "seed", "answers are alike"),
        AlarmRaised("cyd", "wrong", "all answers are wrong", "an answer, which stays here"),
        ReplicaLost("ada", "http://a"),
        ModelSetAside("bob", "it answers no more\nand more lines"),
    ):
        notifier.happened(event)
    notifier.closed()
    await asyncio.to_thread(notifier.close)
    bodies = [hook.posted.get_nowait() for _ in range(hook.posted.qsize())]
    assert [body["reason"] for body in bodies] == [
        "ada: answers are alike",
        "cyd: all answers are wrong",
        "bob: set aside: it answers no more",
    ]


async def test_who_serves_a_model_is_told_that_its_server_can_be_stopped(site: Site, hook: Hook) -> None:
    notifier = opened(site, [NOTHING], webhook=hook.url, on=["done"])
    notifier.happened(ModelSettled("ada", launched=False))
    notifier.happened(ModelSettled("bob", launched=True))  # the run stops that one itself
    notifier.closed()
    await asyncio.to_thread(notifier.close)
    (body,) = [hook.posted.get_nowait() for _ in range(hook.posted.qsize())]
    assert body["event"] == "done" and body["model"] == "ada" and body["text"] == f"run: {body['reason']}."


@pytest.mark.parametrize(
    ("notify", "said"),
    [
        ({}, "must say how to tell"),
        ({"on": ["end"]}, "must say how to tell"),
        ({"webhook": "https://a/b", "webhook_env": "A"}, "both webhook and webhook_env"),
        ({"webhook": "ftp://a"}, "webhook"),
        ({"webhook": "https://hooks.a.com/services/T0/Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8"}, "notify.webhook_env"),
        ({"command": ["curl", "--token=abc"]}, "holds a secret"),
        ({"command": ["a"], "on": ["never"]}, "on"),
    ],
)
def test_a_section_that_cannot_work_is_refused(site: Site, notify: Json, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(site.write(notify=notify))
    assert said in str(refused.value)


def test_an_address_that_is_not_there_is_said_before_anything_is_asked(site: Site) -> None:
    result = site.run(site.write(notify={"webhook_env": "NOWHERE_URL"}))
    assert result.exit_code == ExitCode.CONFIGURATION and "NOWHERE_URL, which is not set" in result.stderr
    assert not site.directory().exists()


def test_who_has_asked_for_nothing_has_no_notifier(site: Site) -> None:
    assert open_notifier(load_config(site.write())) is None
    assert NotifyConfig(webhook="https://a").on == ("end", "stall", "alarm")
