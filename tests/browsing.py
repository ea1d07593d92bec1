"""Debian's chromium, driven by playwright, and pages in it that may not go wrong."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@contextmanager
def chromium() -> "Iterator[Browser]":
    """A browser; playwright's own where the system has none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Tabs:
    """Opens pages; collects what they complain of and what they ask for."""

    browser: "Browser"
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> "Page":
        """The page at this address, in a window of its own."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(url)
        page.wait_for_selector("main h2, table, .problem")
        return page

    def close(self) -> None:
        """Close every page, and fail where one has complained."""
        for context in self.browser.contexts:
            context.close()
        assert self.complaints == []
