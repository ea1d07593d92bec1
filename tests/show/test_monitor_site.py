"""What the monitor serves: to whom, from which files, how much at a time, and how it follows a live run."""

import json
import math
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import orjson
import pytest
from patient_time import HANGS
from played import MODELS, Played

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.http_server import PageServer
from adaptive_eval.core.types import Reason
from adaptive_eval.notes import RunFinished
from adaptive_eval.report.question_rows import as_json
from adaptive_eval.report.view import RunView, read_view
from adaptive_eval.show.page.sent import PageView, page_view
from adaptive_eval.show.serve import page_state
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.show.serve.page_state import to_json
from adaptive_eval.show.serve.site import HEADERS, Site, is_loopback, serve

Play = Callable[..., Played]
HOSTILE = "<script>alert(1)</script>\u202e'\"&\ud800 </pre>"


@asynccontextmanager
async def site_of(path: Path, host: str = "127.0.0.1") -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a site about this run."""
    site = Site(Feed(path), host)
    server = PageServer(site.answer, HEADERS)
    port = await server.listen("127.0.0.1", 0)
    options: dict[str, Any] = {"trust_env": False, "verify": False, "timeout": HANGS}
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", **options) as client:
        try:
            yield client
        finally:
            await server.close()
            site.close()


async def progress_of(client: httpx2.AsyncClient) -> dict[str, Any]:
    """The progress of a run, as a page asks for it."""
    response = await client.get("/api/progress")
    assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
    progress: dict[str, Any] = response.json()
    return progress


# -- to whom, and from where -------------------------------------------------------------------------------------------


SERVED = ("127.0.0.1:{port}", "localhost:9000", "LOCALHOST", "[::1]:80", "10.0.0.7")  # 9000: through a tunnel
OTHERS = ("evil.example", "127.0.0.1.evil.example:{port}", "localhost.evil.example", "gpu01.lan", "[::1", "")
OTHERS += ("evil.example@127.0.0.1.evil.example", "127.0.0.1:{port}@evil.example", "127.0.0.1:", "127.0.0.1:80/x")


async def test_only_requests_addressed_to_this_machine_or_a_host_that_was_named_are_served(play: Play) -> None:
    run = play()
    async with site_of(run.directory) as client:
        for host in (*SERVED, *OTHERS):
            response = await client.get("/", headers={"Host": host.format(port=client.base_url.port)})
            assert response.status_code == (200 if host in SERVED else 421), host
            assert ("<html" in response.text) == (host in SERVED), host
    async with site_of(run.directory, host="gpu01.lan") as client:
        assert (await client.get("/", headers={"Host": "GPU01.lan:80"})).status_code == 200
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("10.0.0.7") and not is_loopback("gpu01")


async def test_every_response_carries_the_same_protection(play: Play) -> None:
    run = play()
    async with site_of(run.directory) as client:
        responses = [await client.get(at) for at in ("/", "/api/progress", "/assets/app.js", "/nothing", "/api/view")]
        responses.append(await client.post("/"))
    for response in responses:
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "form-action 'none'" in policy and "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in response.headers
    assert responses[-1].status_code == 405 and responses[-1].headers["allow"] == "GET, HEAD"
    kept = ["no-cache", "no-store", "no-cache", "no-store", "no-cache"]
    assert [response.headers["cache-control"] for response in responses[:5]] == kept


UNKNOWN = """
/run/..%2Fsecret/ /run/%2e%2e/ /run/../../secret/ /api/run/..%2fsecret/view /api/run/%2e/view /api/run//view
/assets/..%2fdocuments.py /assets/../documents.py /assets/ /assets/%00app.js /runs.sqlite /api/question/0
/api/question/6?model=0 /api/question/0?model=3 /api/question/-1?model=0
/api/question/0?model=x /api/question/0?model=0&after=1e9
/api/question/99999999999999999999?model=0 /api/view/more /api/run/played //etc/passwd
"""


async def test_only_known_paths_are_found(play: Play) -> None:
    run = play()
    shutil.copytree(run.directory, run.directory.with_name("secret"))
    async with site_of(run.directory) as client:
        for path in UNKNOWN.split():
            url = httpx2.URL(scheme="http", host="127.0.0.1", port=client.base_url.port, raw_path=path.encode())
            assert (await client.get(url)).status_code == 404, path


# -- pages, views and answers ------------------------------------------------------------------------------------------


async def test_a_run_has_its_page_at_the_root(play: Play) -> None:
    run = play()
    async with site_of(run.directory) as client:
        page = await client.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "<title>played · adaptive-eval</title>" in page.text
        for asset in ("app.js", "style.css", "icon.svg"):
            response = await client.get(f"/assets/{asset}")
            assert response.status_code == 200 and response.content
            again = await client.get(f"/assets/{asset}", headers={"If-None-Match": response.headers["etag"]})
            assert again.status_code == 304 and not again.content


async def test_a_view_is_fetched_once_until_something_changes(play: Play) -> None:
    run = play(trials={"min": 3, "max": 30, "optimize": "time"})
    run.step(100)
    async with site_of(run.directory) as client:
        first = await client.get("/api/view")
        view = first.json()
        assert view["models"] == list(MODELS) and sum(map(sum, view["trials"])) == 100
        assert view["results"]["run"]["status"] == "running"
        etag = {"If-None-Match": first.headers["etag"]}
        assert (await client.get("/api/view", headers=etag)).status_code == 304
        run.finish()
        last = await client.get("/api/view", headers=etag)
        assert last.status_code == 200
        expected, shown = orjson.loads(orjson.dumps(page_view(read_view(run.directory)))), last.json()
        for key in ("results", "looks", "z", "trials", "events"):
            assert shown[key] == expected[key], key
        assert (await client.head("/api/view")).content == b""


async def test_answers_come_in_bounded_pages_with_all_one_asks(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [300, 300, 300, 300, 5000, 300]

    def text(model: str, question: str, trial: int) -> str:
        return "x" * lengths[trial] if question == "q0" and trial < 6 else f"{trial} {HOSTILE}"

    run = play(trials={"min": 30, "max": 30}, text=text)
    run.step(30 * 6 * 3)
    async with site_of(run.directory) as client:
        first = (await client.get("/api/question/2?model=1")).json()
        assert [trial["trial"] for trial in first["trials"]] == list(range(20)) and first["more"]
        last = (await client.get("/api/question/2?model=1&after=19")).json()
        assert [trial["trial"] for trial in last["trials"]] == list(range(20, 30)) and not last["more"]
        trial = last["trials"][-1]
        assert trial["text"] == f"29 {HOSTILE}".replace("\ud800", "?")
        assert trial["seed"] == 1029 and trial["value"] == float(trial["category"]) and trial["finish_reason"] == "stop"
        assert trial["signals"] == {"is_correct": bool(trial["category"])} and trial["attempts"] == 2
        assert (trial["completion_tokens"], trial["latency"]) == (20, 1.5)
        none = (await client.get("/api/question/2?model=1&after=29")).json()
        assert none["trials"] == [] and not none["more"]
        monkeypatch.setattr(page_state, "MAX_CHARACTERS", 1000)
        pages = []
        after, more = -1, True
        while more:
            page = (await client.get(f"/api/question/0?model=0&after={after}")).json()
            pages.append([len(trial["text"]) for trial in page["trials"]])
            after, more = page["trials"][-1]["trial"], page["more"]
        assert pages[0] == [300, 300, 300] and pages[1] == [300] and pages[3][0] == 300
        assert 1000 < pages[2][0] < 1100
        third = (await client.get("/api/question/0?model=0&after=3")).json()
        assert third["trials"][0]["text"].endswith("[4,000 more characters are stored]")
    view = read_view(run.directory)
    assert orjson.loads(to_json(view)) == orjson.loads(orjson.dumps(view, default=as_json))
    tidied = {"a?": ["?", {"b": ["\u202e", 1.5, None]}]}
    assert json.loads(to_json({"a\udfff": ["\ud800", {"b": ("\u202e", 1.5, None)}]})) == tidied


# -- following a live run ----------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_state, "MIN_STEP_SECONDS", 0.0)
    monkeypatch.setattr(page_state, "MAX_READ_SHARE", math.inf)


async def test_a_page_can_follow_a_run_to_its_end(play: Play, quick: None) -> None:
    run = play()
    run.step(30)
    async with site_of(run.directory) as client:
        first = await progress_of(client)
        assert (first["spending"]["trials"], first["running"]) == (30, True)
        editions = [first["edition"]]
        while run.controller.finished is None:
            run.step(17)
            progress = await progress_of(client)
            editions.append(progress["edition"])
            view = await client.get("/api/view")
            assert view.headers["etag"] == progress["edition"], "answers are in a new view"
            assert sum(map(sum, view.json()["trials"])) == progress["spending"]["trials"] == run.store_trials
            assert progress["spending"]["tokens"] == 30 * run.store_trials and progress["per_second"] > 0.0
        assert len(set(editions)) == len(editions)
        run.publish()
        run.commit([], [], [RunFinished(Reason.SETTLED)])
        run.close()
        end = await progress_of(client)
        assert not end["running"] and end["edition"] != progress["edition"] and end["eta_seconds"] is None
        last = (await client.get("/api/view")).json()
        assert last["results"]["run"]["status"] == "finished" and len(last["looks"]) == len(run.controller.looks)


async def test_a_page_follows_runs_that_go_on_after_their_end_or_move(play: Play, quick: None, tmp_path: Path) -> None:
    ahead = {"min": 3, "max": 30, "optimize": "time"}
    run = play(trials=ahead)
    run.step(40)
    async with site_of(run.directory) as client:
        assert (await progress_of(client))["edition"] == (await progress_of(client))["edition"]
        run.stop()
        ended = await progress_of(client)
        assert not ended["running"]
        again = play(trials=ahead)
        again.step(30)
        living = await progress_of(client)
        assert (living["running"], living["spending"]["trials"]) == (True, 70)
        assert living["edition"] != ended["edition"]
        again.stop()
        assert not (await progress_of(client))["running"]
        run.directory.rename(tmp_path / "away")
        assert (await client.get("/api/progress")).status_code == 503


def test_a_view_that_takes_long_is_built_less_often(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    now, built = 0.0, list[float]()
    monkeypatch.setattr(page_state, "time", SimpleNamespace(monotonic=lambda: now, time_ns=time.time_ns))
    run = play()
    state = page_state.PageState(Feed(run.directory))

    def slow_view(view: RunView) -> PageView:
        nonlocal now
        built.append(now)
        now += 0.3
        return page_view(view)

    monkeypatch.setattr(page_state, "page_view", slow_view)
    edition = ""
    for _ in range(24):
        run.step(1)
        if orjson.loads(state.progress())["edition"] != edition:
            edition = state.view()[1]
        now += 1.0
    assert built == pytest.approx([0.0, 10.3, 20.6]), "0.3 s are 3% of 10 s"
    run.stop()
    now += 1.0
    assert orjson.loads(state.progress())["edition"] != edition, "of a run that is over the view is read at once"


def test_a_busy_machine_reads_less_often(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    now, reading = 0.0, 0.5
    polled: list[float] = []
    monkeypatch.setattr(page_state, "time", SimpleNamespace(monotonic=lambda: now, time_ns=time.time_ns))
    run = play()
    state = page_state.PageState(Feed(run.directory))
    poll = state._feed.poll

    def slow_poll() -> bool:
        nonlocal now
        polled.append(now)
        now += reading
        return poll()

    monkeypatch.setattr(state._feed, "poll", slow_poll)
    for _ in range(40):
        state.progress()
        now += 1.0
    assert polled == pytest.approx([0.0, 17.5, 35.0]), "0.5 s are 3% of 16.7 s"


# -- serving -----------------------------------------------------------------------------------------------------------


async def test_a_port_in_use_is_reported(play: Play) -> None:
    run = play()
    async with site_of(run.directory) as client:
        with pytest.raises(ConfigError, match=r"port \d+ on 127.0.0.1 cannot be used .*; give another --port"):
            await serve(Feed(run.directory), "127.0.0.1", client.base_url.port or 0, print)
    with pytest.raises(ConfigError, match="cannot be used"):
        await serve(Feed(run.directory), "no.such.host.invalid", 0, print)


async def test_the_monitor_can_be_ended_as_soon_as_its_address_is_printed(play: Play) -> None:
    run = play()
    run.finish()
    before = signal.getsignal(signal.SIGTERM)

    def end(_: str) -> None:
        assert signal.getsignal(signal.SIGTERM) is not before
        signal.raise_signal(signal.SIGTERM)

    await serve(Feed(run.directory), "127.0.0.1", 0, end)
    assert signal.getsignal(signal.SIGTERM) == before
