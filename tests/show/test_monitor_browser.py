"""The monitor in a real browser: a page follows a live run, and nothing that a model wrote is more than text."""

import math
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsing import Tabs, until
from gated import GatedServer
from live_runs import MODELS, Site, small_world, wait_for_trials
from patient_time import HANGS
from played import Played
from warm_start import WarmProcess

from adaptive_eval.simulate.server import SimulatedServer, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

Play = Callable[..., Played]
TRIALS = "Number(document.querySelector('[data-key=Trials] .figure').textContent.replace(/\\D/g, ''))"
LOOKS = "Number((document.querySelector('[data-key=Duration] .note')?.textContent ?? '0').replace(/\\D/g, ''))"


@dataclass
class Monitors:
    """`adaptive-eval monitor --web` in processes of their own."""

    running: list[WarmProcess] = field(default_factory=list)

    def serve(self, path: Path, port: int = 0) -> str:
        """Serve a run; gives the address."""
        process = WarmProcess(["monitor", str(path), "--web", "--port", str(port)], path.parent)
        self.running.append(process)
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert address is not None
        return address[0]

    def stop(self) -> None:
        """End all, and see that they end well."""
        while self.running:
            with self.running.pop() as process:
                process.send_signal(signal.SIGTERM)
                assert process.wait(HANGS) == 0


@pytest.fixture
def tabs(tabs: Tabs) -> Iterator[Tabs]:
    """Pages that ask nobody but the monitor."""
    yield tabs
    assert [url for url in tabs.requests if not url.startswith("http://127.0.0.1:")] == []


@pytest.fixture
def monitors(tabs: Tabs) -> Iterator[Monitors]:
    """Monitors that live as long as the pages do."""
    monitors = Monitors()
    yield monitors
    tabs.leave()
    monitors.stop()


@dataclass(frozen=True)
class LiveRun:
    """A run in a process of its own, which goes on only for as many answers of one model as it is given."""

    directory: Path
    server: GatedServer

    def go_on(self, answers: float = math.inf) -> None:
        """Go on to the end, or for that many answers; a look takes 32 at first, and 8 later, of 72."""
        self.server.open(answers)


@pytest.fixture
def live(site: Site) -> Iterator[LiveRun]:
    """A run that has just begun, and waits."""
    gated = GatedServer(small_world(), 10)
    with serving(gated) as url, serving(SimulatedServer(small_world())) as others:
        models = [{"name": name, "base_url": url if name == MODELS[0] else others} for name in MODELS]
        trials = {"min": 4, "max": 40, "optimize": "cost"}
        process = site.start(site.write(models=models, concurrency=4, trials=trials))
        assert wait_for_trials(site.directory(), 1, process)
        yield LiveRun(site.directory(), gated)
        with process:
            process.kill()


def number(page: "Page", expression: str) -> int:
    return int(page.evaluate(expression))


def draw_all(page: "Page") -> None:
    """Open every section that has content, and check it."""
    for section in page.locator("main > section:not([hidden])").all():
        fold = section.locator("> details")
        if fold.count():
            fold.evaluate("fold => { fold.open = true; }")
        section.scroll_into_view_if_needed()
        until(page, f"document.querySelector('#{section.get_attribute('id')} .body').textContent.length > 0")


def open_cell(page: "Page", right: int = 2) -> None:
    """Choose a cell of the heat map by keyboard, and open its question."""
    page.locator("#trials canvas").focus()
    for _ in range(right):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] details.answer")


# -- a live run --------------------------------------------------------------------------------------------------------


def test_the_page_of_a_live_run_follows_it_by_itself(live: LiveRun, monitors: Monitors, tabs: Tabs) -> None:
    page = tabs.at(monitors.serve(live.directory))
    live.go_on(30)
    until(page, f"{LOOKS} >= 1")
    trials, looks = number(page, TRIALS), number(page, LOOKS)
    live_parts = re.compile(r"/view$|/progress$|/question/")
    pages = [url for url in tabs.requests if not live_parts.search(url)]
    live.go_on(16)
    until(page, f"{TRIALS} > {trials} && {LOOKS} > {looks}")
    assert "running" in page.inner_text("h1") and "live" in page.inner_text("h1")
    page.locator("#trials").scroll_into_view_if_needed()
    shown = page.evaluate("document.querySelector('#trials p').textContent")
    live.go_on()
    until(page, f"document.querySelector('#trials p').textContent !== {shown!r}")
    open_cell(page)
    answer = page.locator("dialog details.answer").first
    answer.locator("summary").first.click()
    assert "boxed" in answer.inner_text() or "answer" in answer.inner_text()
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    until(page, "document.querySelector('h1').textContent.includes('finished')")
    # what is out of sight is drawn too, once the run is over
    until(page, "document.querySelector('.lead').textContent.includes('Finished')")
    assert page.evaluate("scrollY") > 1000
    assert [url for url in tabs.requests if not live_parts.search(url)] == pages


# -- reading -----------------------------------------------------------------------------------------------------------


def tab_to(page: "Page", what: str, at_most: int) -> bool:
    """Whether the tabulator reaches it in so many steps."""
    for _ in range(at_most):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({what!r})"):
            return True
    return False


def test_the_keyboard_reaches_the_answers(play: Play, monitors: Monitors, tabs: Tabs) -> None:
    run = play()
    run.finish()
    page = tabs.at(monitors.serve(run.directory))
    page.wait_for_selector("#trials canvas")
    assert tab_to(page, "#trials canvas", 200)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] details.answer")
    assert tab_to(page, "dialog details.answer > summary", 20)
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog details.answer[open] pre")
    assert "for the 0th time" in page.locator("dialog details.answer[open]").inner_text()
    page.keyboard.press("Escape")
    until(page, "document.querySelector('dialog').open === false")
    assert page.evaluate("document.activeElement.matches('#trials canvas')"), "and leads back to where it was"


# -- hostile texts -----------------------------------------------------------------------------------------------------

BAD = '</script></pre><script>window.pwned=1</script><img src=x onerror="window.pwned=2">\u202e'
NAMES = (
    "<img src=x onerror=window.pwned=3>",
    "javascript:window.pwned=4//\"'`><svg onload=window.pwned=5>",
    "\u202egnp.exe {{7*7}} ${window.pwned=6} </title><script>window.pwned=7</script>",
)
ANSWER = f"{BAD} [x](javascript:window.pwned=8) <a href='javascript:window.pwned=9'>go</a> <iframe> \ud800 &lt;"
FOREIGN = "document.scripts.length !== 2 || document.querySelectorAll('img, iframe, object, embed').length > 0"
ALL = "[...document.querySelectorAll('*')]"
LINKS = f"{ALL}.flatMap((one) => [one.getAttribute('href'), one.getAttribute('src')]).filter((link) => link !== null)"
HANDLERS = f"{ALL}.flatMap((one) => one.getAttributeNames()).filter((attribute) => attribute.startsWith('on'))"


def test_hostile_texts_stay_texts(play: Play, monitors: Monitors, tabs: Tabs) -> None:
    skills = dict(zip(NAMES, (0.9, 0.5, 0.45), strict=True))
    run = play(models=NAMES, skills=skills, text=lambda model, question, trial: f"{trial} {ANSWER}", asked=BAD)
    run.finish()
    page = tabs.at(monitors.serve(run.directory))
    draw_all(page)
    open_cell(page)
    for summary in page.locator("dialog details.answer > summary").all():
        summary.click()
    shown = page.locator("dialog[open]").inner_text()
    assert "<script>window.pwned=1</script>" in shown and "javascript:window.pwned=8" in shown and "&lt;" in shown
    assert "\u202e" not in shown, "what turns the direction of writing is shown as a sign, and not obeyed"
    assert NAMES[0] in page.inner_text("#ranking")
    assert page.evaluate("window.pwned") is None
    assert not page.evaluate(FOREIGN) and page.evaluate(HANDLERS) == []
    assert [link for link in page.evaluate(LINKS) if ":" in link and not link.startswith("https://")] == []
