"""The site of the documents in chromium: complete without a network, found by its search, and no wider than a phone."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from browsing import Tabs, until_painted
from document_blocks import ROOT

pytestmark = pytest.mark.browser
SITE = ROOT / "build" / "site"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the site is served, as it is built from the documents now."""
    subprocess.run([sys.executable, "documents/site.py"], cwd=ROOT, check=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_every_page_is_whole_without_a_network(address: str, tabs: Tabs) -> None:
    page = tabs.open()
    for path in sorted(SITE.rglob("*.html")):
        page.set_viewport_size({"width": 390, "height": 900})
        page.goto(f"{address}/{path.relative_to(SITE)}")
        assert page.inner_text("h1"), path
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert not [url for url in tabs.requests if not url.startswith((address, "data:", "blob:"))]
    assert not [complaint for complaint in tabs.complaints if complaint.startswith("error")]


def test_the_search_finds_a_word_of_the_guide(address: str, tabs: Tabs) -> None:
    page = tabs.open()
    page.goto(f"{address}/index.html")
    page.locator("dialog[aria-label=Search]").wait_for(state="attached")  # the index has been read
    until_painted(page)  # and then keys are heard
    page.keyboard.press("Control+k")
    page.locator("input:focus").type("reach")
    page.locator("a", has_text="out of reach").first.wait_for(timeout=60_000)
