"""Draw docs/page.png: the report page of the quickstart example, as a browser shows it.

    python documents/picture.py

Needs playwright and chromium. Run it when the appearance of the page has changed.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "configs" / "quickstart.yaml"
PICTURE = ROOT / "docs" / "page.png"
WIDTH, HEIGHT = 1180, 800


def run_command(*arguments: object) -> None:
    """Run `adaptive-eval` with these arguments; an undecided run is not a failure."""
    words = [sys.executable, "-m", "adaptive_eval", *map(str, arguments)]
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL)


def draw(report: Path) -> None:
    """Draw the upper part of a report."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(report.as_uri())
        page.wait_for_selector("#cost .tile")
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        run, report = Path(folder, "quickstart"), Path(folder, "report.html")
        run_command("run", EXAMPLE, "--run-dir", run, "--display", "none")
        run_command("report", run, "--output", report)
        draw(report)
