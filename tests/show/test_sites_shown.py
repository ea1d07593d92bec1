"""What a terminal shows of sites on a cluster."""

from collections.abc import Sequence
from dataclasses import replace

from adaptive_eval.report.sites import SiteRow
from adaptive_eval.report.status import CurrentTraffic, Status
from adaptive_eval.show.displays import pending_look
from adaptive_eval.show.live import counted_sites, traffic
from adaptive_eval.show.text import Rates

SERVES = SiteRow("ada", "site 1", "serving", 1000.0, "gpu-07", "ab12", 8.0, "0,1,2,3,4,5,6,7", 2, 1, 1, "x")
LOST = SiteRow("bob", "site 2", "lost", 1090.0, "gpu-08", "cd34", 4.0, None, 1, 0, 3, "its node died")
OVER = replace(SERVES, model="cyd", state="ended", moves=0, losses=0)


def status(rows: Sequence[SiteRow] = (SERVES, LOST, OVER)) -> Status:
    now = CurrentTraffic(120, 0, 0, 1, 1)
    return Status(3, None, (), now, 640, 640, 9000, 50.0, None, sites=tuple(rows))


def test_a_line_counts_the_sites() -> None:
    sentence = "sites: 1 serving, 1 lost, 1 ended, lost 4 times, moved 1 times"
    assert counted_sites((SERVES, LOST, OVER)) == sentence and counted_sites(()) is None
    shown = traffic(status(), Rates()).plain
    assert sentence in shown and "120 in flight" in shown
    assert sentence in pending_look(status()) and "site" not in pending_look(status(()))
