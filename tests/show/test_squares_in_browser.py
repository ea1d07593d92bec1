"""The matrix of many models: squares on a canvas, so that the page has few nodes."""

import pytest
from browsing import Tabs
from page_views import simulated, world

from adaptive_eval.report.view import RunView
from adaptive_eval.show.page.documents import report_page

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
