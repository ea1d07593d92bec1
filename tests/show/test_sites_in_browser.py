"""The sites of a run on a cluster, on its page: where each is, what it serves, losses and moves."""

from dataclasses import replace

import pytest
from browsing import Tabs
from page_views import START, simulated, world

from adaptive_eval.notes import Event, ServerLaunched, SiteLost, SitePlaced
from adaptive_eval.report.sites import SiteRow, site_rows
from adaptive_eval.report.view import RunView
from adaptive_eval.show.page.documents import report_page

pytestmark = pytest.mark.browser

MODELS = ("ann", "bo", "cy", "di")
HOSTILE = "<img src=x onerror=alert(1)>\u202egpu"


def seen() -> tuple[SiteRow, ...]:
    """Three sites: one that serves after a move, one that is lost, one whose node has a hostile name."""
    events: list[Event] = []
    for number, host in enumerate(("gpu-01", "gpu-02", HOSTILE)):
        gpus = {"GPU": 8.0 if number else 0.5}
        place = MODELS[number], f"site {number + 1}"
        events += [
            SitePlaced(*place, host, gpus, 1.0, False, 9, f"{number}abcdef0123", "0,1" if number else None, at=START),
            ServerLaunched(place[0], on=place[1], seconds=9.0, at=START + 10),
        ]
    events += [
        SiteLost("ann", "site 1", "gpu-01", "its raylet was killed", at=START + 20),
        SitePlaced("ann", "site 1", "gpu-09", {"GPU": 0.5}, 1.0, False, 9, "9abcdef0123", at=START + 25),
        ServerLaunched("ann", on="site 1", seconds=9.0, at=START + 30),
        SiteLost("bo", "site 2", "gpu-02", "it was silent for 60 s", at=START + 40),
    ]
    return site_rows(events)


def view() -> RunView:
    return replace(simulated(world(MODELS)), sites=seen())


def test_each_site_has_a_row_and_those_in_trouble_come_first(tabs: Tabs) -> None:
    page = tabs.report(report_page(view()))
    part = "#traffic [aria-label='Sites on the cluster']"
    rows = [
        [cell.inner_text() for cell in row.query_selector_all("th, td")]
        for row in page.query_selector_all(f"{part} tbody tr")
    ]
    assert [row[0] for row in rows] == ["bo", "ann", "cy"]
    lost, moved, evil = rows
    assert lost[1:4] == ["site 2", "gpu-02", "1abcdef0"] and lost[-2:] == ["1", "0"]
    assert lost[4] == "lost" and "bo, site 2: lost, it was silent for 60 s." in page.inner_text("#traffic")
    assert moved[2:5] == ["gpu-09", "9abcdef0", "serving"] and moved[6:] == ["0.5", "1", "1"]
    assert evil[6] == "8 (0,1)" and "<img" in evil[2] and "\u202e" not in evil[2]
    assert "3 sites: 1 lost, 2 serving; lost 2 times, moved 1 time to another node." in page.inner_text("#traffic")
    head = page.locator(f"{part} thead th").all_inner_texts()
    assert [text.strip() for text in head][-3:] == ["GPUs", "lost", "moved"]
