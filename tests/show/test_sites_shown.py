"""What a terminal shows of sites on a cluster."""

import io
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from adaptive_eval.report.sites import SiteRow
from adaptive_eval.report.status import CurrentTraffic, Status
from adaptive_eval.show.displays import pending_look
from adaptive_eval.show.live import SHOWN_SITES, counted_sites, has_open_site, sites_table, traffic
from adaptive_eval.show.text import Rates

HOSTILE = "\x1b[2J[red]gpu\u202e"
SERVES = SiteRow("ada", "site 1", "serving", 1000.0, "gpu-07", "ab12", 8.0, "0,1,2,3,4,5,6,7", 2, 1, 1, "x", 1000.0)
LOST = SiteRow("bob", "site 2", "lost", 1090.0, HOSTILE, "cd34", 4.0, None, 1, 0, 3, "its node died", None, 60.0)
OVER = replace(SERVES, model="cyd", state="ended", up=None, moves=0, losses=0)


def status(rows: Sequence[SiteRow] = (SERVES, LOST, OVER)) -> Status:
    now = CurrentTraffic(120, 0, 0, 1, 1)
    return Status(3, None, (), now, 640, 640, 9000, 50.0, None, sites=tuple(rows))


def drawn(shown: Status) -> str:
    console = Console(file=io.StringIO(), width=140, record=True)
    console.print(sites_table(shown, now=1100.0))
    return console.export_text()


def test_the_terminal_shows_each_site_in_use_and_those_in_trouble_first() -> None:
    header, lost, serves = drawn(status()).splitlines()
    assert header.split()[:4] == ["site", "model", "host", "GPUs"]
    assert " ".join(serves.split()) == "site 1 ada gpu-07 8 serving 1m40s 1 1"
    assert "site 2" in lost and " lost " in lost and " 10s " in lost and lost.split()[-2:] == ["3", "0"]
    assert "\x1b" not in lost and "\u202e" not in lost and "[red]gpu" in lost


def test_many_sites_do_not_fill_the_screen() -> None:
    many = [replace(SERVES, site=f"site {number}") for number in range(512)]
    lines = drawn(status(many)).splitlines()
    assert len(lines) == SHOWN_SITES + 2 and "and 504 more" in lines[-1]


def test_a_line_counts_the_sites() -> None:
    sentence = "sites: 1 serving, 1 lost, 1 ended, lost 4 times, moved 1 times"
    assert counted_sites((SERVES, LOST, OVER)) == sentence and counted_sites(()) is None
    assert sentence in traffic(status(), Rates()).plain
    assert sentence in pending_look(status()) and "site" not in pending_look(status(()))
    assert has_open_site(status()) and not has_open_site(status([OVER]))
