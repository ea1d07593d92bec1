"""Debian's chromium, driven by playwright, and pages in it that may not go wrong.

A key, a mouse button and what is filled in have had their effect when playwright returns; it can be read at once.
Waited for is what comes later: an answer of a server, a request that it has got, what `details` show once open, rows
that come into sight, the click that a touch becomes, the place to which the page scrolls, and every timer but those of
a clock that is held.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from patient_time import HANGS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@contextmanager
def chromium() -> "Iterator[Browser]":
    """A browser: the system's, or playwright's own where the system has none."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=1000 * HANGS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"], timeout=1000 * HANGS
        )
        yield browser
        browser.close()


BEGINS = datetime(2026, 11, 1, tzinfo=UTC)


def hold_clock(page: "Page") -> None:
    """From now on the page's clock goes on only when it is told to."""
    page.clock.install(time=BEGINS)
    page.clock.pause_at(BEGINS + timedelta(days=1))


def until(page: "Page", expression: str) -> None:
    """Wait until this holds; asked from outside, since the page's policy forbids to evaluate texts inside of it."""
    deadline = time.monotonic() + HANGS
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"it never holds: {expression}"
        page.wait_for_timeout(50)


def until_painted(page: "Page") -> None:
    """Wait until the browser has painted what was drawn so far, has scrolled to keep in place what is read, and has
    done what was to be done after that."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")


def unfold(page: "Page") -> None:
    """Open every section of a run's page, and wait until all of them are drawn."""
    page.wait_for_selector("#words details.part", state="attached")
    page.evaluate("document.querySelectorAll('details.part').forEach((one) => { one.open = true; })")
    page.wait_for_selector("#words .glossary", state="attached")


def open_question(page: "Page", row: int) -> None:
    """Open the question in a row of the posteriors by keyboard, with the first model."""
    page.locator("#questions canvas").focus()
    for key in ("Home", *("ArrowDown",) * row, "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("dialog[open]")


def click_pair(page: "Page", models: int, row: int, column: int) -> None:
    """Choose a square of a matrix that has room for numbers, under a line with those of the columns."""
    canvas = page.locator("#matrix canvas")
    box = canvas.bounding_box()
    assert box is not None
    side = (box["height"] - 19) / models
    canvas.click(position={"x": box["width"] - 1 - (models - column - 0.5) * side, "y": 18 + (row + 0.5) * side})


@dataclass
class Tabs:
    """Opens pages; collects what they complain of and what they ask for."""

    browser: "Browser"
    folder: Path
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(
        self, *, width: int = 1280, height: int = 900, dark: bool = False, touch: bool = False, still: bool = False
    ) -> "Page":
        """An empty page of that size; `touch` for fingers, `still` for those who want reduced motion."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
            reduced_motion="reduce" if still else "no-preference",
        )
        context.set_default_timeout(1000 * HANGS)
        page = context.new_page()
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    def report(self, html: str, *, width: int = 1280, dark: bool = False) -> "Page":
        """A report with all of its sections open."""
        path = self.folder / "report.html"
        path.write_text(html, encoding="utf-8")
        page = self.open(width=width, dark=dark)
        page.goto(path.as_uri())
        unfold(page)
        return page

    def at(self, url: str, *, width: int = 1280, height: int = 900) -> "Page":
        """A page of the monitor, as soon as there is something to read."""
        page = self.open(width=width, height=height)
        page.goto(url)
        page.wait_for_selector("main h2, table, .problem")
        if page.locator("details.part").count():
            unfold(page)
        return page

    def leave(self) -> None:
        """Close every page: done before its server ends, for a page that is left without one rightly complains."""
        for context in self.browser.contexts:
            context.close()

    def forgive(self) -> None:
        """Leave, and forget what pages complained of: their server was made to fail."""
        self.leave()
        self.complaints.clear()

    def close(self) -> None:
        """Leave, and fail where a page has complained."""
        self.leave()
        assert not self.complaints, self.complaints
