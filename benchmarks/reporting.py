"""How long a large run takes to report, and how soon its page is there.

    python benchmarks/reporting.py [--quick] [--json PATH] [--markdown PATH]

A run of 20 models x 120 questions x 80 trials (192,000 stored answers, 77 looks; --quick: 12,000) is made on a
simulated server that answers at once. Then `adaptive-eval report` is started in a process of its own for each format,
imports and all: on the run as it ended, and as a kill would have left it, without its published results, which are then
worked out anew from the trials. Of three starts the least counts, since others use the machine. First paint is what
chromium says of report.html, the least of five loads.
"""

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.record.results_file import RESULTS_FILE
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency, shared_difficulty

REPORT_WITHIN, PAINT_WITHIN = 5.0, 1.0
FORMATS = ("html", "md", "json", "csv")
STARTS, LOADS = 3, 5


class Took(NamedTuple):
    """One report: the least of several."""

    seconds: float
    cpu: float


def make_run(folder: Path, models: int, questions: int, trials: int) -> Path:
    """A run that takes every trial, with a look after each round: its rule gives nothing up."""
    world = replace(shared_difficulty(models, questions), latency=Latency(median=0.0))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, question_rows(world))))
    with serving(SimulatedServer(world)) as url:
        settings = {
            "questions": "questions.jsonl",
            "models": [{"name": name, "base_url": url} for name in world.models],
            "sampling": {"temperature": 0.6},
            "grader": "numeric",
            "stopping": {"rule": "published", "prior": "uniform"},
            "trials": {"min": 4, "max": trials, "policy": "uniform", "favour": "answers"},
            "concurrency": 32,
        }
        (folder / "large.yaml").write_text(json.dumps(settings))
        directory = folder / "large"
        command = ["run", str(folder / "large.yaml"), "--run-dir", str(directory), "--display", "none"]
        subprocess.run([sys.executable, "-m", "adaptive_eval", *command], check=False)
    return directory


def reported(directory: Path, *options: str) -> Took:
    """`adaptive-eval report` in a process of its own."""
    command = [sys.executable, "-m", "adaptive_eval", "report", str(directory), *options]
    took = []
    for _ in range(STARTS):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        took.append(Took(seconds, cpu))
    return min(took)


def all_reports(directory: Path) -> Iterator[tuple[str, Took]]:
    """Every format, with published results and without."""
    for kind in FORMATS:
        yield kind, reported(directory, "--format", kind)
    yield "md and figures", reported(directory, "--format", "md", "--plots", str(directory / "plots"))
    results = directory / RESULTS_FILE
    shutil.move(results, results.with_suffix(".kept"))
    yield "html, results worked out anew", reported(directory, "--format", "html")
    shutil.move(results.with_suffix(".kept"), results)


def first_paint(page: Path) -> float | None:
    """Seconds until chromium shows something; None without a browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    paints = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(LOADS):
            tab = browser.new_page()
            tab.goto(page.as_uri())
            tab.wait_for_timeout(300)
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            paints.append(float(tab.evaluate(paint)) / 1000.0)
            tab.close()
        browser.close()
    return min(paints)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    size = (10, 30, 40) if options.quick else (20, 120, 80)
    with tempfile.TemporaryDirectory() as folder:
        directory = make_run(Path(folder), *size)
        took = dict(all_reports(directory))
        painted = first_paint(directory / "report.html")
        megabytes = (directory / "report.html").stat().st_size / 1e6
    checks = [
        Check(
            f"report --format {what}: seconds",
            round(one.seconds, 2),
            f"< {REPORT_WITHIN:g}",
            one.seconds < REPORT_WITHIN,
        )
        for what, one in took.items()
    ]
    if painted is not None:
        checks.append(
            Check(
                "first paint of report.html: seconds", round(painted, 2), f"< {PAINT_WITHIN:g}", painted < PAINT_WITHIN
            )
        )
    shape = " x ".join(map(str, size))
    about = f"On {machine()}; {shape} trials; report.html has {megabytes:.2f} MB."
    rows = [(what, round(one.seconds, 2), round(one.cpu, 2)) for what, one in took.items()]
    text = "\n\n".join(
        [
            "# Reporting",
            (__doc__ or "").strip(),
            about,
            markdown(("format", "seconds", "CPU seconds"), rows),
            check_table(checks),
        ]
    )
    publish(options, text, checks)
    sys.exit(0 if all(check.holds for check in checks) else 1)


if __name__ == "__main__":
    main()
