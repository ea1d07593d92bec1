"""The monitor's page, served what the test chooses: it changes in place, and answers stay text."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from browsing import Tabs, hold_clock, open_question, unfold, until_painted
from page_views import simulated, world

from adaptive_eval.report.question_rows import as_json
from adaptive_eval.report.view import RunView
from adaptive_eval.show.page.documents import MONITOR_POLICY, assets, monitor_page
from adaptive_eval.show.page.sent import page_view

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

MODELS = ("ann", "bo", "cy", "di")
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e\u0000 \\boxed{42}"


PROGRESS: dict[str, Any] = {
    "per_second": 10.0, "elapsed": 90.0, "eta_seconds": 80, "caps": [],
    "spending": {"trials": 320, "tokens": 64_000, "usd": 0.0, "gpu_seconds": 0.0},
}  # fmt: skip
"""Progress of a run that goes on."""


class Server(ThreadingHTTPServer):
    """Serves a page with what the test puts into it."""

    daemon_threads = True

    def __init__(self, view: RunView | None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.view = view
        self.trials: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.edition = 0
        self.cuts = False
        """Whether answers break off before their end."""
        self.progress: dict[str, Any] = PROGRESS
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def change(self, view: RunView) -> None:
        """Set another view, which a page then fetches."""
        self.view, self.edition = view, self.edition + 1

    def go_on(self, **progress: object) -> None:
        """Set further progress, which a page then shows."""
        self.progress = {**self.progress, **progress}

    def stop(self) -> None:
        """Close every connection."""
        self.shutdown()
        self.server_close()

    def page_at(self, path: str) -> tuple[str, str] | None:
        """The content type and text of a path; None where there is nothing."""
        self.asked.append(path)
        if path.startswith("assets/"):
            return assets()[path.removeprefix("assets/")]
        if path == "":
            return "text/html", monitor_page("page")
        if self.view is None:
            return None
        if path == "api/view":
            return "application/json", orjson.dumps(page_view(self.view), default=as_json).decode()
        if path == "api/progress":
            status = "running" if self.view.results is None else self.view.results.run.status
            progress = {**self.progress, "edition": f"{id(self)} {self.edition}", "running": status == "running"}
            return "application/json", json.dumps(progress)
        after = int(path.partition("after=")[2] or -1)
        later = [row for row in self.trials if row["trial"] > after]
        return "application/json", json.dumps({"trials": later[:2], "more": len(later) > 2})


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_GET(self) -> None:
        path = self.path.removeprefix("/")
        content = self.server.page_at(path)
        body = content[1].encode() if content else b"not now"
        self.send_response(200 if content else 503)
        self.send_header("Content-Type", content[0] if content else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", MONITOR_POLICY)
        self.end_headers()
        self.wfile.write(body[:-1] if self.server.cuts else body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def trial(number: int, **changes: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "trial": number, "seed": 7, "category": 1, "value": 1.0, "signals": {}, "extracted": "42", "grader_error": None,
        "finish_reason": "stop", "prompt_tokens": 10, "completion_tokens": 700, "latency": 1.5, "replica": "a",
        "attempts": 1, "text": "So it is 42.", "reasoning": None, "completion_bpt": None, "tokens": [],
    }  # fmt: skip
    return plain | changes


@pytest.fixture
def serve(tabs: Tabs) -> Iterator[Callable[..., Server]]:
    """Begins a server, which lives as long as the pages do."""
    servers: list[Server] = []

    def begin(view: RunView | None, port: int = 0) -> Server:
        servers.append(Server(view, port))
        return servers[-1]

    yield begin
    tabs.leave()
    for server in servers:
        server.stop()


def opened(tabs: Tabs, server: Server, path: str = "", *, held: bool = False) -> "Page":
    """The page of a run, drawn to its end; its clock may be `held`."""
    page = tabs.open()
    if held:
        hold_clock(page)
    page.goto(server.url + path)
    unfold(page)
    return page


def early() -> RunView:
    """A run after its second look, and still going on."""
    return running(simulated(world(MODELS), looks=2))


def running(view: RunView) -> RunView:
    assert view.results is not None
    return replace(view, results=replace(view.results, run=replace(view.results.run, status="running", reason=None)))


def test_a_new_look_changes_the_page_in_place(tabs: Tabs, serve: Callable[..., Server]) -> None:
    server = serve(early())
    page = opened(tabs, server)
    page.locator(".panel").first.click()
    page.locator("#stopping .large summary").click()
    page.locator("#stopping .large tbody tr").first.wait_for()
    page.locator("#questions canvas").focus()
    until_painted(page)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#ranking .note'))")
    where = "[String(getSelection()), document.activeElement.getBoundingClientRect().top]"
    selected, top = page.evaluate(where)
    assert selected and page.evaluate("scrollY") > 500
    row = page.locator("#ranking tbody tr").first.element_handle()
    server.change(simulated(world(MODELS)))
    page.wait_for_selector(".status.finished")
    until_painted(page)
    assert page.evaluate(where) == [selected, pytest.approx(top, abs=2)], "what is read stays where it is"
    assert page.evaluate("document.activeElement.matches('#questions canvas')")
    assert page.locator("#stopping .large details[open]").count() == 1
    assert row is not None and row.evaluate("(one) => one.isConnected")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_selector("#ranking .lead:has-text('Finished')")


def test_progress_updates_the_numbers(tabs: Tabs, serve: Callable[..., Server]) -> None:
    spent = {"trials": 321, "tokens": 65_000, "usd": 0.0, "gpu_seconds": 0.0}
    server = serve(early())
    page = opened(tabs, server)
    server.go_on(per_second=12.0, elapsed=95.0, spending=spent, eta_seconds=75)
    page.wait_for_selector(".tile:has-text('321')")
    tiles = page.inner_text(".tiles")
    for text in ("1m 35s", "12/s", "1m 15s", "65,000"):
        assert text in tiles
    beats = "getComputedStyle(document.querySelector('.pulse'), '::before').animationName"
    assert page.evaluate(beats) == "beat"
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(beats) == "none"
    assert server.asked.count("api/view") == 1, "numbers that moved are not drawn over"


def test_a_page_asks_each_second_and_reads_each_third_while_seen(tabs: Tabs, serve: Callable[..., Server]) -> None:
    server = serve(early())
    page = opened(tabs, server, held=True)

    def asked() -> tuple[int, int]:
        """Requests for the progress, and for the view."""
        views = server.asked.count("api/view")
        return server.asked.count("api/progress"), views

    def shows(trials: int) -> None:
        """Wait until the page has drawn an answer of the server, and with that set its clock again."""
        page.wait_for_selector(f".tile:has-text('{trials:,}')")

    def change(trials: int) -> None:
        """Set another view, and progress with this many trials."""
        server.change(early())
        server.go_on(spending={**PROGRESS["spending"], "trials": trials})

    page.wait_for_selector(".pulse")
    assert asked() == (1, 1)
    for second in range(1, 7):
        change(5000 + second)
        page.clock.run_for(900)
        assert asked()[0] == second
        page.clock.run_for(200)
        shows(5000 + second)
        assert asked() == (second + 1, 1 + second // 3)
    hide = "Object.defineProperty(document, 'hidden', { configurable: true, value: true })"
    page.evaluate(hide)
    change(6000)
    page.clock.run_for(60_000)
    page.evaluate("fetch('assets/style.css').then((answer) => answer.text())")  # by then it would have asked
    assert asked() == (7, 3), "nobody looks"
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    shows(6000)
    assert asked() == (8, 4)
    server.change(simulated(world(MODELS)))
    page.clock.run_for(1100)
    page.wait_for_selector(".status.finished")
    assert asked() == (9, 5), "of a run that is over the view is read at once"


def test_verdicts_are_announced(tabs: Tabs, serve: Callable[..., Server]) -> None:
    view = early()
    assert view.results is not None
    open_, *others = (replace(pair, verdict="open") for pair in view.results.pairs)
    server = serve(replace(view, results=replace(view.results, pairs=(open_, *others))))
    page = opened(tabs, server, held=True)
    server.change(replace(view, results=replace(view.results, pairs=(replace(open_, verdict="resolved"), *others))))
    page.clock.run_for(3100)
    page.wait_for_selector("#page > [aria-live]:not(:empty)", state="attached")
    assert page.inner_text("#page > [aria-live]") == f"{open_.first} over {open_.second}: resolved"


def test_answers_are_read_page_by_page_and_stay_texts(tabs: Tabs, serve: Callable[..., Server]) -> None:
    bad = trial(1, text=HOSTILE, reasoning=HOSTILE, extracted=HOSTILE, category=0, value=0.0, replica=HOSTILE)
    failed = trial(2, category=None, value=None, grader_error=HOSTILE, finish_reason=HOSTILE, signals={HOSTILE: True})
    server = serve(early())
    server.trials = [trial(0, replica="logs/inspect/a.eval"), bad, failed]
    page = opened(tabs, server)
    open_question(page, 1)
    page.wait_for_selector("dialog .answer >> nth=1")
    assert any(path.startswith("api/question/1?model=0") for path in server.asked)
    page.click("dialog [data-next]")
    page.wait_for_selector("dialog .answer >> nth=2")
    assert page.locator("dialog [data-next]").count() == 0
    for number in range(3):
        page.locator("dialog .answer > summary").nth(number).click()
    text = page.inner_text("dialog")
    assert "Inspect’s log" in text and "logs/inspect/a.eval" in text
    assert text.count("<script>alert(2)</script>") >= 4 and "U+202E" in text and "U+0000" in text
    assert "\u202e" not in text and page.locator("dialog img, dialog script").count() == 0
    page.click("dialog [data-model='cy']")
    page.wait_for_selector("dialog [data-key=trials-cy] .answer")
    assert any("question/1?model=2" in path for path in server.asked)
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('#questions canvas')")


def test_a_server_that_comes_back_is_found(tabs: Tabs, serve: Callable[..., Server], unused_tcp_port: int) -> None:
    server = serve(early(), unused_tcp_port)
    page = opened(tabs, server)
    page.wait_for_selector(".pulse")
    server.cuts = True
    page.wait_for_selector(".waiting")
    server.cuts = False
    page.wait_for_selector(".waiting", state="detached")
    server.stop()
    page.wait_for_selector(".waiting")
    assert page.locator("#ranking tbody tr").count() == len(MODELS)
    serve(simulated(world(MODELS)), server.server_port)
    page.wait_for_selector(".waiting", state="detached")
    page.wait_for_selector(".status.finished")
    unread = tabs.open()
    unread.goto(serve(None).url)
    unread.wait_for_selector("[role=alert]")
    assert "the server answered 503" in unread.inner_text("[role=alert]"), "a run that cannot be read"
    tabs.forgive()  # the browser tells of every request that failed


def test_tokens_stand_with_their_probabilities_and_stay_texts(tabs: Tabs, serve: Callable[..., Server]) -> None:
    """All tokens, or the first of many, whatever they contain and in whichever direction they are written."""
    tokens = [["It", -0.01], [" is\n", -1.0], [HOSTILE, None], ["\u05e9\u05dc\u05d5\u05dd", -0.25], ["42", 0.0]]
    long = {"signals": {"is_correct": True, "verifier_a": 1.2345678901234567}, "completion_bpt": 0.36403373713}
    server = serve(early())
    server.trials = [trial(0, tokens=tokens, completion_tokens=5, **long), trial(1, tokens=tokens)]
    page = opened(tabs, server)
    open_question(page, 1)
    page.wait_for_selector("dialog .answer >> nth=1")
    for number in range(2):
        page.locator("dialog .answer > summary").nth(number).click()
    lists = page.locator("dialog .answer details.reasoning")
    titles = [f"Probabilities of {which} 5 tokens" for which in ("its", "the first")]
    assert lists.locator("summary").all_inner_texts() == titles
    assert not lists.first.locator("pre").is_visible()
    lists.first.locator("summary").click()
    shown = lists.first.locator("pre").inner_text().split("\n")
    assert shown[:2] == [' 99.0%  "It"', ' 36.8%  " is\\n"'] and shown[4] == '100.0%  "42"'
    assert shown[2].startswith('     ?  "<img src=x') and "U+202E" in shown[2] and len(shown) == 5
    assert lists.first.locator("pre").evaluate("(one) => getComputedStyle(one).direction") == "ltr"
    text = page.inner_text("dialog")
    assert "\u202e" not in text and page.locator("dialog img, dialog script").count() == 0
    assert "verifier_a 1.235" in text and "0.364" in text and "0.36403" not in text
