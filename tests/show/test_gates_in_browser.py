"""The page of a run with a gate for each benchmark: a verdict on each, and one decision about each model."""

import subprocess
import sys

import pytest
from browsing import Tabs
from live_runs import Site

from adaptive_eval.errors import ExitCode
from adaptive_eval.record.view import read_view
from adaptive_eval.show.page.documents import report_page

pytestmark = pytest.mark.browser


def test_the_page_says_the_verdict_on_each_benchmark_and_one_decision(site: Site, tabs: Tabs) -> None:
    words = ["run", str(site.gated_benchmarks()), "--run-dir", str(site.directory()), "--display", "plain"]
    ran = subprocess.run([sys.executable, "-m", "adaptive_eval", *words], capture_output=True, text=True)
    assert ran.returncode == ExitCode.WORSE, ran.stdout + ran.stderr
    page = tabs.report(report_page(read_view(site.directory())))
    lead = page.inner_text(".lead b")
    assert lead.count("FAIL") == 1 and "on easy worse than bob by more than 10 points" in lead
    assert page.locator(".lead b.gate-FAIL").count() == 1, "one decision, in its colour"
    table = page.locator("#details table", has_text="Scores by benchmark")
    cells = {
        name: dict(
            zip(("easy", "hard"), table.locator("tbody tr", has_text=name).locator("td").all_inner_texts(), strict=True)
        )
        for name in ("ada", "bob", "cyd")
    }
    assert cells["ada"]["easy"].endswith(" PASS") and cells["cyd"]["easy"].endswith(" FAIL")
    others = [cells["bob"]["easy"], *(one["hard"] for one in cells.values())]
    assert not [text for text in others if "PASS" in text or "FAIL" in text], "no verdict where there is no gate"
    assert "Nothing is decided by them alone" not in page.inner_text("#details")
    says = page.locator("#ranking tbody tr").all_inner_texts()
    assert any("cyd" in row and "FAIL" in row for row in says), says
