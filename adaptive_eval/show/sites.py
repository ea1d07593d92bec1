"""Sites of a run on a cluster, for a terminal."""

import time
from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from adaptive_eval.record.lines import duration, safe_name
from adaptive_eval.record.sites import SiteRow, SiteState
from adaptive_eval.record.status import Status
from adaptive_eval.show.text import count

SHOWN_SITES = 8
MAX_WIDTH = 24
STYLES = {SiteState.SERVING: "green", SiteState.LOST: "red", SiteState.WAITING: "yellow", SiteState.LOADING: "yellow"}


def counted_sites(rows: Sequence[SiteRow]) -> str | None:
    """Number of sites by state, and of losses; None if there are no sites."""
    if not rows:
        return None
    states = Counter(row.state for row in rows)
    parts = [f"{states[state]} {state}" for state in SiteState if states[state]]
    losses, moves = sum(row.losses for row in rows), sum(row.moves for row in rows)
    parts += [f"lost {losses} times"] if losses else []
    parts += [f"moved {moves} times"] if moves else []
    return f"sites: {', '.join(parts)}"


def has_open_site(status: Status) -> bool:
    """Whether any site has not ended."""
    return any(row.state != SiteState.ENDED for row in status.sites)


def sites_table(status: Status, now: float | None = None) -> Table:
    """Table of the sites that have not ended, those in trouble first; `now` in seconds since 1970."""
    now = time.time() if now is None else now
    there = [row for row in status.sites if row.state != SiteState.ENDED]
    there.sort(key=lambda row: row.state == SiteState.SERVING)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("site", "model", "host", "GPUs", "state", "for", "lost", "moved"):
        texts = title in ("site", "model", "host", "state")
        table.add_column(title, justify="left" if texts else "right", no_wrap=True)
    for row in there[:SHOWN_SITES]:
        table.add_row(
            *(Text(safe_name(text, MAX_WIDTH)) for text in (row.site, row.model, row.host or "-")),
            Text(f"{row.gpus:g}"),
            Text(row.state, style=STYLES.get(SiteState(row.state), "")),
            Text(duration(max(0.0, now - row.since))),
            Text(count(row.losses)),
            Text(count(row.moves)),
        )
    if len(there) > SHOWN_SITES:
        table.add_row(Text(f"and {len(there) - SHOWN_SITES} more", style="dim"))
    return table
