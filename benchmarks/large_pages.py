"""The page of a live run of many models: its elements, and the CPU of the browser that shows it.

    python benchmarks/large_pages.py [--quick] [--seconds N] [--markdown PATH] [--json PATH]

A run of 200 models and 400 questions goes on against a server that answers at once, and a page of it is open in
chromium, first at its top and then at each of its sections in turn. Elements are those of the whole document, and those
that the section has. The browser's CPU is that of all its processes, over the seconds that the section is in sight;
news come about once a second, and a new view with each look. What the report of the same run has, all of whose sections
are drawn, stands beside it. Linux alone: times are read from /proc.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from monitoring import ADAPTIVE_EVAL, cpu_of, ended, monitoring
from tables import Check, arguments, check_table, machine, markdown, publish
from throughput import one_reply

MODELS, QUESTIONS = 200, 400
SECTIONS = (
    "() => [...document.querySelectorAll('main > section')].map((one) => [one.id, one.querySelectorAll('*').length])"
)
ALL = "document.querySelectorAll('*').length"
MOST_ELEMENTS, MOST_CORES = 10_000, 0.2


def configuration(url: str, folder: Path, models: int, questions: int) -> Path:
    """Models that are all right on every other question: nothing is ever decided, and every look has all to judge."""
    rows = [
        {"id": f"q{number}", "prompt": f"[q{number}] Which integer is meant?", "answer": "42" if number % 2 else "43"}
        for number in range(questions)
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = {
        "name": "large",
        "questions": "questions.jsonl",
        "models": [{"name": f"model-{at:03}", "base_url": url, "model": "m"} for at in range(models)],
        "prompt": "{prompt}\nPlease put your final answer within \\boxed{}.",
        "sampling": {"temperature": 0.6, "max_tokens": 1000},
        "concurrency": 4,
        "grader": "numeric",
        "stopping": {"futility": False},
        "trials": {"min": 1, "max": 80},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return path


def browser_below(root: int) -> int:
    """The first process of the browser that has been started below this one."""
    children = [int(pid) for path in Path(f"/proc/{root}/task").iterdir()
                for pid in (path / "children").read_text().split()]  # fmt: skip
    for pid in children:
        if Path(f"/proc/{pid}/comm").read_text().startswith("chrom"):
            return pid
    return next((found for pid in children if (found := browser_below(pid))), 0)


def seen(page: Any, browser: int, seconds: float) -> list[tuple[object, ...]]:
    """For each section: its elements, those of all, and the cores of the browser while it is in sight."""
    rows: list[tuple[object, ...]] = []
    for name, _ in page.evaluate(SECTIONS):
        page.evaluate("(name) => document.getElementById(name).scrollIntoView()", name)
        page.wait_for_timeout(2000)  # until what has come into sight is drawn
        before, since = cpu_of(browser), time.monotonic()
        page.wait_for_timeout(1000 * seconds)
        cores = (cpu_of(browser) - before) / (time.monotonic() - since)
        own = dict(page.evaluate(SECTIONS))[name]
        if own > 5:  # some sections are empty for a run of this kind
            rows.append((name, own, page.evaluate(ALL), cores))
    return rows


def report_of(page: Any, directory: Path, folder: Path) -> tuple[dict[str, int], int]:
    """The elements of each section of the run's report, and of the whole."""
    path = folder / "report.html"
    command = ["report", str(directory), "--format", "html", "--output", str(path)]
    subprocess.run([*ADAPTIVE_EVAL, *command], check=True, capture_output=True)
    page.goto(path.as_uri())
    drawn = 0
    while (now := page.evaluate(ALL)) != drawn:  # sections are drawn one by one
        drawn = now
        page.wait_for_timeout(2000)
    return dict(page.evaluate(SECTIONS)), drawn


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="that each section is in sight")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    models, questions, seconds = (60, 50, 2.0) if options.quick else (MODELS, QUESTIONS, options.seconds)
    with tempfile.TemporaryDirectory() as name, one_reply() as url, sync_playwright() as playwright:
        folder, directory = Path(name), Path(name) / "run"
        config = configuration(url, folder, models, questions)
        with ended([*ADAPTIVE_EVAL, "run", str(config), "--run-dir", str(directory), "--display", "none"]) as run:
            while not (directory / "results.json").exists():
                time.sleep(0.1)
                if run.poll() is not None:
                    raise SystemExit("the run has ended before it was looked at")
            with monitoring(directory) as (_, address):
                chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                page = chromium.new_page(viewport={"width": 1280, "height": 900})
                page.goto(address)
                page.wait_for_selector("#ranking tbody tr", timeout=600_000)
                rows = seen(page, browser_below(os.getpid()), seconds)
                if run.poll() is not None:
                    raise SystemExit("the run has ended while it was looked at")
            sections, whole = report_of(page, directory, folder)
            chromium.close()
    most, cores = max(int(str(row[2])) for row in rows), max(float(str(row[3])) for row in rows)
    table = [(name, own, sections[str(name)], of_all, used) for name, own, of_all, used in rows]
    checks = [
        Check("elements of the live page, at most", most, f"<= {MOST_ELEMENTS}", most <= MOST_ELEMENTS),
        Check("elements of the report, all drawn", whole, "", None),
        Check("cores of the browser, at most", round(cores, 3), f"<= {MOST_CORES}", cores <= MOST_CORES),
    ]
    header = ["section in sight", "its elements", "in the report", "of the whole page", "cores of the browser"]
    about = "\n\n".join(part for part in __doc__.split("\n\n") if not part.startswith("    ")).strip()
    scale = f"On {machine()}; {models} models, {questions} questions, {seconds:g} s a section."
    publish(options, "\n\n".join(["# Pages of many models", about, scale, markdown(header, table),
                                  check_table(checks)]), checks)  # fmt: skip


if __name__ == "__main__":
    main()
