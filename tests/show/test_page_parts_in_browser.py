"""Parts of the page that not every run has: gates, labels, and the squares of many models."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest
from browsing import Tabs, click_pair, unfold
from live_runs import Site
from page_views import simulated, world

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.report.finding import main_findings
from adaptive_eval.report.gate import OUTCOMES
from adaptive_eval.report.labelled import LabelledModel, LabelledRun
from adaptive_eval.report.view import RunView, read_view
from adaptive_eval.show.page.documents import report_page

pytestmark = pytest.mark.browser


def test_the_page_says_the_verdict_on_each_benchmark_and_one_decision(site: Site, tabs: Tabs) -> None:
    words = ["run", str(site.gated_benchmarks()), "--run-dir", str(site.directory()), "--display", "plain"]
    ran = subprocess.run([sys.executable, "-m", "adaptive_eval", *words], capture_output=True, text=True)
    assert ran.returncode == ExitCode.WORSE, ran.stdout + ran.stderr
    page = tabs.report(report_page(read_view(site.directory())))
    failed, passed = page.locator(".lead b").all()
    assert "on easy: worse than bob by more than 10 points" in failed.inner_text()
    assert failed.get_attribute("class") == "gate-FAIL" and passed.get_attribute("class") == "gate-PASS"
    assert failed.bounding_box()["x"] == passed.bounding_box()["x"], "each on a line of its own"  # type: ignore[index]
    table = page.locator("#details table", has_text="Scores by benchmark")
    rows = (table.locator("tbody tr", has_text=name) for name in ("ada", "bob", "cyd"))
    (ada, *others), (bob, hard), (cyd, harder) = (row.locator("td").all_inner_texts() for row in rows)
    assert ada.endswith(" PASS") and cyd.endswith(" FAIL")
    assert not re.findall("PASS|FAIL", " ".join((*others, bob, hard, harder))), "no verdict where there is no gate"
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


pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=alert(1)>"


def labelled(**changes: object) -> LabelledRun:
    rows = (
        LabelledModel("ada", 80, 30, ((20, 4, 0), (0, 6, 0)), 0.75, 0.04, 0.612, 0.03, -0.138, 0.02),
        LabelledModel("bob", 80, 5, ((3, 0, 0), (0, 2, 0)), 0.5, 0.04),
    )
    return replace(LabelledRun("0", "judge", ("correct", HOSTILE), rows, True, 0), **changes)


def with_labels(view: RunView, labels: LabelledRun) -> RunView:
    assert view.results is not None
    return replace(view, results=replace(view.results, labelled=labels))


def test_corrected_scores_the_error_and_unusable_labels_are_on_the_page(tabs: Tabs) -> None:
    orders = "Of 160 comparisons 25.0% depend on the order."
    bare = simulated(world(("ada", "bob")), looks=3)
    assert not tabs.report(report_page(bare)).locator("#labels").is_visible()
    page = tabs.report(report_page(replace(with_labels(bare, labelled()), orders=orders)))
    page.locator("#labels").scroll_into_view_if_needed()
    text = page.locator("#labels").inner_text()
    assert "160 comparisons 25.0% depend on the order" in text
    assert "35 answers have a label; the grader (judge) disagrees with 4 of them." in text
    assert "61.2%" in text and "55.3% .. 67.1%" in text and "error differs between models" in text
    assert HOSTILE in text and page.locator("#labels img").count() == 0
    page = tabs.report(report_page(with_labels(bare, labelled(problem=f"no such {HOSTILE}"))))
    page.locator("#labels").scroll_into_view_if_needed()
    assert HOSTILE in page.locator("#labels").inner_text() and page.locator("#labels img").count() == 0


pytestmark = pytest.mark.browser
NAMES = tuple(f"model-{number:02}" for number in range(45))
PICKED = "#matrix .detail h3"
FILL = """([row, column]) => {
    const canvas = document.querySelector("#matrix canvas");
    const dense = window.devicePixelRatio || 1;
    const side = Math.round((canvas.height / dense - 1) / 45);
    const left = canvas.width / dense - 1 - 45 * side;
    const at = [(left + (column + 0.5) * side) * dense, (row + 0.5) * side * dense].map(Math.floor);
    const copy = document.createElement("canvas");
    copy.width = copy.height = 1;
    copy.getContext("2d", { willReadFrequently: true }).drawImage(canvas, ...at, 1, 1, 0, 0, 1, 1);
    return [...copy.getContext("2d").getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""


@pytest.fixture(scope="module")
def many() -> RunView:
    return simulated(world(NAMES, 6), looks=1, trials={"min": 8, "max": 40})


def test_squares_are_filled_by_z(tabs: Tabs, many: RunView) -> None:
    assert many.results is not None
    page = tabs.report(report_page(many))
    page.wait_for_selector("#matrix canvas", state="attached")
    assert page.locator("#matrix td").count() == 0 and page.locator("#matrix *").count() < 100
    z, last = [value or 0.0 for value in many.z[0]], len(NAMES) - 1
    best, even = (0, last), min(range(1, last), key=lambda at: abs(z[at]))
    assert z[last] > 4.0 and abs(z[even]) < 1.0
    ahead, behind, neither = (page.evaluate(FILL, [*at]) for at in (best, best[::-1], (0, even)))
    assert ahead != behind and neither not in (ahead, behind)
    assert ahead[2] > ahead[0] and behind[0] > behind[2], "blue is ahead, and orange behind"


def test_the_keyboard_and_the_pointer_reach_every_pair(tabs: Tabs, many: RunView) -> None:
    assert many.results is not None
    order = [row.name for row in many.results.models]
    page = tabs.report(report_page(many))
    page.wait_for_selector("#matrix canvas", state="attached")
    page.locator("#matrix canvas").focus()
    page.keyboard.press("ArrowDown")  # from the second of the first row, over the diagonal
    page.keyboard.press("ArrowRight")  # over it again
    assert page.inner_text("#matrix .readout").startswith(f"{order[2]} against {order[3]}: z ")
    assert order[2] in page.inner_text(PICKED) and order[3] in page.inner_text(PICKED)
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"
    for _ in range(60):
        page.keyboard.press("ArrowUp")
    assert page.inner_text("#matrix .readout").startswith(f"{order[0]} against {order[3]}: z ")
    box = page.locator("#matrix canvas").bounding_box()
    assert box is not None
    page.locator("#matrix canvas").click(position={"x": box["width"] - 5, "y": 3})
    assert page.inner_text("#matrix .readout").startswith(f"{order[0]} against {order[-1]}: z ")
    assert order[-1] in page.inner_text(PICKED)
