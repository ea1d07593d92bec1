"""Labelling answer by answer: what is shown and on disk, and the page: what is served, to whom, and never the model."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from browsing import Tabs
from command_line import typed
from live_runs import MODELS, EndedRuns, Site
from patient_time import HANGS

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.labels.session import LabelSession
from adaptive_eval.labels.site import LabellingSite, label_assets, label_page
from adaptive_eval.report.label_file import read_labels


@pytest.fixture
def run(site: Site, ended_runs: EndedRuns) -> Path:
    return ended_runs.copy(site, trials={"min": 4, "max": 4})


@pytest.fixture
def served(run: Path) -> Iterator[LabellingSite]:
    site = LabellingSite(LabelSession(run, 4), lambda: None)
    yield site
    site.close()


def asked(
    site: LabellingSite, path: str, method: str = "POST", secret: str | None = None, host: str = "127.0.0.1:80"
) -> web.Response:
    request = make_mocked_request(method, f"/{secret or site.secret}/{path}", {"Host": host})
    return asyncio.run(site.answer(request))


def state(response: web.Response) -> dict[str, Any]:
    assert response.status == 200
    value: dict[str, Any] = json.loads(response.body)
    return value


def test_what_is_pressed_is_stored_and_old_pages_change_nothing(run: Path, served: LabellingSite) -> None:
    first = state(asked(served, "now", "GET"))
    assert (first["place"], first["number"], first["over"]) == (1, 4, False)
    assert [text["name"] for text in first["texts"]] == ["question", "reference", "answer"]
    assert first["fields"] == [{"name": "verdict", "levels": ["correct", "wrong"]}]
    assert not [name for name in (*MODELS, "is_correct", "trial") if name in json.dumps(first)]
    second = state(asked(served, "label?place=1&label=correct"))
    assert second["place"] == 2 and second["texts"] != first["texts"]
    assert state(asked(served, "label?place=1&label=wrong")) == second  # a key that was pressed twice
    assert state(asked(served, "label?place=2&label=good")) == second
    assert state(asked(served, "back?place=2"))["given"] == "correct"
    assert state(asked(served, "label?place=1&label=wrong"))["place"] == 2
    assert state(asked(served, "skip?place=2"))["place"] == 3
    assert [given.label for given in read_labels(run).values()] == ["wrong"]


@pytest.mark.parametrize(
    ("path", "method", "changes", "status"),
    [
        ("now", "GET", {"secret": "guess"}, 404),
        ("label?place=1&label=correct", "POST", {"secret": "guess"}, 404),
        ("label?place=1&label=correct", "GET", {}, 404),
        ("label?place=1&label=correct", "POST", {"host": "rebound.example"}, 421),
        ("label?place=1&label=correct", "POST", {"host": "127.0.0.1:8000@evil"}, 421),
        ("assets/..", "GET", {}, 404),
        ("labels.jsonl", "GET", {}, 404),
    ],
)
def test_requests_without_the_secret_of_the_address_change_nothing(
    run: Path, served: LabellingSite, path: str, method: str, changes: dict[str, str], status: int
) -> None:
    assert asked(served, path, method, **changes).status == status
    assert not read_labels(run)


def test_an_unwritable_label_is_reported(run: Path, served: LabellingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before anything is shown, as on a disk that is only read."""
    (run / "labels.jsonl").symlink_to("elsewhere")
    response = asked(served, "label?place=1&label=correct")
    assert response.status == 503 and b"is a link" in response.body
    begun = typed("label", run)
    assert begun.exit_code == ExitCode.FAILED and "is a link" in begun.stderr and not begun.stdout
    (run / "labels.jsonl").unlink()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert "cannot be written; label a copy of the run" in typed("label", run, code=ExitCode.FAILED).stderr


@contextmanager
def serving_page(run: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`adaptive-eval label` in a process of its own, and its address."""
    command = [sys.executable, "-u", "-m", "adaptive_eval", "label", str(run), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        output = ""
        while (address := re.search(r"http://\S+/", output)) is None:
            line = process.stdout.readline()
            assert line, output
            output += line
        yield process, address[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ask(url: str, path: str, method: str = "POST") -> bytes:
    address = urlsplit(url)
    with closing(HTTPConnection(str(address.hostname), address.port, timeout=HANGS)) as link:
        link.request(method, address.path + path)
        response = link.getresponse()
        body = response.read()
    assert response.status == 200, body
    return body


@pytest.mark.slow
def test_a_whole_life_over_http(run: Path) -> None:
    with serving_page(run, "-n", "2") as (process, url):
        assert b"<script defer" in ask(url, "", "GET") and b"kbd" in ask(url, "assets/style.css", "GET")
        assert b"openLabels" in ask(url, "assets/app.js", "GET")
        ask(url, "label?place=1&label=correct")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=HANGS)
        assert process.returncode == ExitCode.REACHED and "1 answer has a label" in output
    with serving_page(run, "-n", "1") as (process, url):
        assert json.loads(ask(url, "label?place=1&label=wrong"))["over"]
        ask(url, "end")
        output, _ = process.communicate(timeout=HANGS)
        assert process.returncode == ExitCode.REACHED and "2 answers have a label" in output
    assert len(read_labels(run)) == 2


def test_two_things_at_once_are_refused(run: Path) -> None:
    for options in ("--from labels.csv --show", "--port 5000 --show", "--port 0 --from labels.csv"):
        assert typed("label", run, *options.split()).exit_code == ExitCode.CONFIGURATION


@pytest.mark.browser
def test_by_keyboard_in_a_browser(site: Site, tabs: Tabs) -> None:
    run = site.directory()
    process = site.start(site.write(trials={"min": 4, "max": 4}))  # a browser has the loop of this process
    process.communicate(timeout=HANGS)
    refused = list[str]()

    def refuse_once(route: Any) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route.request.url)
            route.fulfill(status=503, body="the disk is full")

    with serving_page(run, "-n", "3") as (process, url):
        page = tabs.open()
        page.route(re.compile(r"/label\?"), refuse_once)
        page.goto(url)
        page.bring_to_front()
        page.wait_for_selector("h1:has-text('1 of 3')")
        shown = page.locator("#page").inner_text()
        assert "question" in shown and "reference" in shown and not [name for name in MODELS if name in shown]
        page.keyboard.press("1")
        page.wait_for_selector("[role=alert]:has-text('the disk is full')")
        page.keyboard.press("1")  # once more, when there is room again
        page.wait_for_selector("h1:has-text('2 of 3')")
        assert all("503" in complaint for complaint in tabs.complaints)
        tabs.complaints.clear()
        page.keyboard.press("7")  # no such verdict
        page.keyboard.press("2")
        page.wait_for_selector("h1:has-text('3 of 3')")
        page.keyboard.press("u")
        page.wait_for_selector("text=You said: wrong")
        page.keyboard.press("1")
        page.wait_for_selector("h1:has-text('3 of 3')")
        page.keyboard.press("s")
        page.wait_for_selector("text=Nothing is left to label")
        page.keyboard.press("q")
        page.wait_for_selector("text=you can close this page")
        process.communicate(timeout=HANGS)
    assert [given.label for given in read_labels(run).values()] == ["correct", "correct"]


TEXTS = (r"$\frac{1}{2}$, \boxed{\text{<img src=x onerror=alert(1)>}}", "<script>alert(1)</script>\u202e\x07 end")


@pytest.mark.browser
def test_texts_are_shown_as_they_are_and_never_as_markup(tabs: Tabs) -> None:
    state = {"over": False, "place": 1, "number": 1, "given": None, "fields": []}
    state["texts"] = [{"name": f"text {number}", "text": text} for number, text in enumerate(TEXTS)]
    page = tabs.open()
    pages = {"": ("text/html", label_page()), "now": ("application/json", json.dumps(state))}
    pages |= {f"assets/{name}": asset for name, asset in label_assets().items()}

    def serve(route: Any) -> None:
        kind, body = pages[urlsplit(route.request.url).path[1:]]
        route.fulfill(body=body, content_type=kind)

    page.route("http://label.test/**", serve)
    page.goto("http://label.test/")
    page.wait_for_selector("#page pre")
    latex, script = page.locator("#page pre").all_text_contents()
    assert latex == TEXTS[0]
    assert script == "<script>alert(1)</script>U+202EU+0007 end", "what cannot be seen is shown by its code"
    assert page.locator("#page img, #page script").count() == 0 and tabs.complaints == []


def test_a_session_ends_with_the_answers(run: Path) -> None:
    first = LabelSession(run, 1000)
    number = 0
    while first.current is not None:
        number += first.label("correct")
    assert number == len(read_labels(run)) == 3 * 8 * 4
    assert LabelSession(run, 5).current is None
