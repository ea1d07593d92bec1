"""Who listens to the monitor in `monitoring.py`, in a process of its own, until it is ended.

python monitoring_worker.py listen URL   # asks for progress and views as a page does
python monitoring_worker.py browse URL   # a page in chromium; prints how soon it was there, in milliseconds
"""

import json
import shutil
import sys
import time
from urllib.request import ProxyHandler, build_opener

PAUSE_SECONDS, VIEW_SECONDS = 1.0, 3.0
"""As often as a page asks for the progress, and fetches the view."""
PATIENCE_SECONDS = 60
SOON = """() => ({
    painted: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
    drawn: document.querySelector("#ranking tbody tr") ? performance.now() : null,
})"""


def listen(url: str) -> None:
    opener = build_opener(ProxyHandler({}))
    (run,) = json.load(opener.open(f"{url}api/runs"))
    about = f"{url}api/run/{run['name']}/"
    print("{}", flush=True)
    step, edition, viewed = -1, None, 0.0
    while True:
        found = json.load(opener.open(f"{about}progress?after={step}"))
        if found["edition"] != edition and time.monotonic() - viewed >= VIEW_SECONDS:
            opener.open(f"{about}view").read()
            edition, viewed = found["edition"], time.monotonic()
        step = found["step"]
        time.sleep(PAUSE_SECONDS)


def browse(url: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while None in (soon := page.evaluate(SOON)).values():
            if time.monotonic() > deadline:
                raise SystemExit(f"the page of {url} has no ranking after {PATIENCE_SECONDS} s")
            page.wait_for_timeout(20)
        print(json.dumps(soon), flush=True)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    role, address = sys.argv[1:]
    {"listen": listen, "browse": browse}[role](address)
