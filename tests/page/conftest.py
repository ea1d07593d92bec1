"""Debian's chromium, driven by playwright, and pages in it that may not go wrong."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@dataclass
class Tabs:
    """Opens pages; collects what they complain of and what they ask for."""

    browser: "Browser"
    folder: Path
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, *, width: int = 1280, dark: bool = False, reduced_motion: bool = False) -> "Page":
        """An empty page of that width."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if reduced_motion else "no-preference",
        )
        page = context.new_page()
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    def report(self, html: str, *, width: int = 1280, dark: bool = False) -> "Page":
        """A report as a reader opens it, drawn to its end."""
        path = self.folder / "report.html"
        path.write_text(html, encoding="utf-8")
        page = self.open(width=width, dark=dark)
        page.goto(path.as_uri())
        page.wait_for_selector("#repeat .yaml", state="attached")
        return page


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    assert path is not None, "these tests need chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tabs(browser: "Browser", tmp_path: Path) -> "Iterator[Tabs]":
    tabs = Tabs(browser, tmp_path)
    yield tabs
    for context in browser.contexts:
        context.close()
    assert tabs.complaints == []
