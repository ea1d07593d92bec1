"""The page of a run with a gate for each benchmark: a verdict on each, and one decision about each model."""

import subprocess
import sys

import pytest
from browsing import Tabs, click_pair, unfold
from live_runs import Site
from page_views import simulated, world

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.report.finding import main_findings
from adaptive_eval.report.gate import OUTCOMES
from adaptive_eval.report.view import read_view
from adaptive_eval.show.page.documents import report_page

pytestmark = pytest.mark.browser


def test_the_page_says_the_verdict_on_each_benchmark_and_one_decision(site: Site, tabs: Tabs) -> None:
    words = ["run", str(site.gated_benchmarks()), "--run-dir", str(site.directory()), "--display", "plain"]
    ran = subprocess.run([sys.executable, "-m", "adaptive_eval", *words], capture_output=True, text=True)
    assert ran.returncode == ExitCode.WORSE, ran.stdout + ran.stderr
    page = tabs.report(report_page(read_view(site.directory())))
    failed, passed = page.locator(".lead b").all()
    assert "on easy worse than bob by more than 10 points" in failed.inner_text()
    assert [sentence.get_attribute("class") for sentence in (failed, passed)] == ["gate-FAIL", "gate-PASS"], (
        "one decision each"
    )
    assert failed.bounding_box()["x"] == passed.bounding_box()["x"], "each on a line of its own"  # type: ignore[index]
    table = page.locator("#details table", has_text="Scores by benchmark")
    cells = {
        name: dict(
            zip(("easy", "hard"), table.locator("tbody tr", has_text=name).locator("td").all_inner_texts(), strict=True)
        )
        for name in ("ada", "bob", "cyd")
    }
    assert cells["ada"]["easy"].endswith(" PASS") and cells["cyd"]["easy"].endswith(" FAIL")
    others = [cells["bob"]["easy"], *(scores["hard"] for scores in cells.values())]
    assert not [text for text in others if "PASS" in text or "FAIL" in text], "no verdict where there is no gate"
    assert "No decision uses them alone" not in page.inner_text("#details")
    says = page.locator("#ranking tbody tr").all_inner_texts()
    assert any("cyd" in row and "FAIL" in row for row in says), says


def test_the_page_shows_a_gate_on_a_value_as_a_gate(tabs: Tabs) -> None:
    objective = {"kind": "threshold", "value": 0.5, "gate": True}
    view = simulated(world("abc", 8), objective=objective, stopping={"delta": "4%"})
    assert view.results is not None
    page = tabs.report(report_page(view))
    assert [sentence.inner_text() for sentence in page.locator(".lead b").all()] == list(main_findings(view.results))
    assert not page.locator("#ranking .tier").count()
    unfold(page)
    for gate, pair in zip(view.results.gate, view.results.pairs, strict=True):
        panel = page.locator("#stopping .panel", has_text=f"{gate.model}against 50.0%")
        assert panel.locator(".below").inner_text().split("\n")[0] == gate.outcome
        panel.click()
        large = page.locator("#stopping .large").inner_text()
        assert f"{gate.model} against 50.0%" in large
        assert "z of (difference + 4.0 points), positive speaks for a pass" in large
        assert {"passes", "fails"} <= set(page.locator("#stopping .large text.region").all_text_contents())
        assert "ρ" not in large and "resolved" not in large, pair


def test_the_page_shows_a_gate_as_a_gate(tabs: Tabs) -> None:
    """Its z is of the difference with delta added, its verdicts are outcomes, and it has no confidence in an order."""
    objective = {"kind": "baseline", "baseline": "d", "gate": True}
    view = simulated(world("abcdefgh", 8), objective=objective, stopping={"delta": "4%"})
    assert view.results is not None
    outcomes, lines = [row.outcome for row in view.results.gate], main_findings(view.results)
    assert [line.partition(":")[0] for line in lines[:-1]] == sorted(outcomes, key=OUTCOMES.index)[:5]
    assert lines[-1] == "And 2 more.", "the worst stand first"
    page = tabs.report(report_page(view))
    assert not page.locator("#ranking .tier").count(), "nobody stands in a tier"
    unfold(page)
    order = [row.name for row in view.results.models]
    rule, judged = "#stopping", "z of (difference + 4.0 points)"
    for gate, pair in zip(view.results.gate, view.results.pairs, strict=True):
        panel = page.locator(f"{rule} .panel", has_text=f"{gate.model}against d")
        z = (pair.z or 0.0) * (1 if pair.first == gate.model else -1)
        word = gate.outcome
        reach = "now" if pair.verdict == "resolved" else f"of {pair.boundary:.2f}"
        assert panel.locator(".below").inner_text().split("\n") == [word, f"z {z:.2f} {reach}".replace("-", "−")]
        panel.click()
        large = page.locator(f"{rule} .large").inner_text()
        assert f"{gate.model} against d" in large and f"{judged}, positive speaks for a pass" in large
        assert {"passes", "fails"} <= set(page.locator(f"{rule} .large text.region").all_text_contents())
        assert "is better" not in large and "ρ" not in large and "resolved" not in large and "tied" not in large
        click_pair(page, len(order), order.index(gate.model), order.index("d"))
        panel_of_pair = page.inner_text("#matrix .detail")
        assert f"{judged}, {gate.model} against d" in panel_of_pair and f"{z:.2f}".replace("-", "−") in panel_of_pair
        assert "ρ" not in panel_of_pair and ("Boundary" in panel_of_pair) == (pair.verdict != "resolved")
