"""The page's section on labels: the grader's error, corrected scores, and what it says where there are none."""

from dataclasses import replace

import pytest
from browsing import Tabs
from page_views import simulated, world

from adaptive_eval.report.labelled import LabelledModel, LabelledRun
from adaptive_eval.report.view import RunView
from adaptive_eval.show.page.documents import report_page

pytestmark = pytest.mark.browser
MODELS = ("ada", "bob")
HOSTILE = "<img src=x onerror=alert(1)>"


def labelled(**changes: object) -> LabelledRun:
    rows = (
        LabelledModel("ada", 80, 30, ((20, 4, 0), (0, 6, 0)), 0.75, 0.04, 0.612, 0.03, -0.138, 0.02),
        LabelledModel("bob", 80, 5, ((3, 0, 0), (0, 2, 0)), 0.5, 0.04),
    )
    labels = LabelledRun("0", "judge", ("correct", HOSTILE), rows, True, 0)
    return replace(labels, **changes)


def with_labels(view: RunView, labels: LabelledRun) -> RunView:
    assert view.results is not None
    return replace(view, results=replace(view.results, labelled=labels))


def test_corrected_scores_and_the_error_are_on_the_page(tabs: Tabs) -> None:
    orders = "Of 160 comparisons 25.0% depend on the order."
    view = replace(with_labels(simulated(world(MODELS), looks=3), labelled()), orders=orders)
    page = tabs.report(report_page(view))
    page.locator("#labels").scroll_into_view_if_needed()
    text = page.locator("#labels").inner_text()
    assert "160 comparisons 25.0% depend on the order" in text
    assert "35 answers have a label; the grader (judge) disagrees with 4 of them." in text
    assert "61.2%" in text and "55.3% .. 67.1%" in text and "error differs between models" in text
    assert HOSTILE in text and page.locator("#labels img").count() == 0


def test_unusable_labels_are_mentioned_and_missing_ones_are_not(tabs: Tabs) -> None:
    page = tabs.report(report_page(simulated(world(MODELS), looks=3)))
    assert not page.locator("#labels").is_visible()
    wrong = with_labels(simulated(world(MODELS), looks=3), labelled(problem=f"no such {HOSTILE}"))
    page = tabs.report(report_page(wrong))
    page.locator("#labels").scroll_into_view_if_needed()
    assert HOSTILE in page.locator("#labels").inner_text() and page.locator("#labels img").count() == 0
