"""Where the sites of a run are, what they serve and since when, derived from its events."""

from dataclasses import replace

from adaptive_eval.core.types import Reason
from adaptive_eval.notes import (
    Event,
    RunFinished,
    RunResumed,
    RunStarted,
    ServerDied,
    ServerLaunched,
    ServerReleased,
    SiteAwaited,
    SiteLost,
    SitePlaced,
)
from adaptive_eval.report.sites import SiteBook, SiteRow, site_rows


def placed(at: float, node: str, *, host: str = "gpu-07", site: str = "site 1") -> SitePlaced:
    return SitePlaced("ada", site, host, {"CPU": 4, "GPU": 2}, 3.0, 77, node, "4,5", at=at)


def ready(at: float, seconds: float = 30.0, site: str = "site 1") -> ServerLaunched:
    return ServerLaunched("ada", on=site, seconds=seconds, at=at)


BEGUN: list[Event] = [RunStarted(at=100.0), placed(110.0, "n1"), ready(140.0)]


def only(events: list[Event]) -> SiteRow:
    (row,) = site_rows(events)
    return row


def test_a_site_serves_since_its_server_was_ready_until_another_start() -> None:
    assert only(BEGUN) == SiteRow("ada", "site 1", "serving", 140.0, "gpu-07", "n1", 2.0, "4,5", 1)
    assert only([*BEGUN, RunResumed(at=200.0)]).state == "ended"
    book = SiteBook()
    book.on_event(placed(0.0, "n1"), now=42.0)
    assert book.rows[0].since == 42.0, "an event that is not stored yet has the current time"
    of_this_machine = ServerLaunched("ada", on="gpu 0", at=2.0), ServerReleased("ada", at=3.0)
    assert site_rows([RunStarted(at=1.0), *of_this_machine]) == (), "which is no site"


def test_a_site_goes_through_its_states_step_by_step() -> None:
    steps: list[tuple[Event, str, float]] = [
        (RunStarted(at=1.0), "", 0.0),
        (SiteAwaited("ada", "site 1", "GPU 2", "none has so much", at=6.0), "waiting", 6.0),
        (placed(9.0, "n1"), "loading", 9.0),
        (ready(20.0), "serving", 20.0),
        (ServerDied("ada", "it ended", 1, 3, "site 1", at=50.0), "loading", 50.0),
        (ready(60.0), "serving", 60.0),
        (SiteLost("ada", "site 1", "gpu-07", "its node died", at=70.0), "lost", 70.0),
        (placed(75.0, "n2"), "loading", 75.0),
        (ready(90.0), "serving", 90.0),
        (ServerReleased("ada", "site 1", at=100.0), "ended", 100.0),
        (RunFinished(Reason.SETTLED, at=120.0), "ended", 100.0),
    ]
    book = SiteBook()
    for event, state, since in steps:
        book.on_event(event)
        assert [(row.state, row.since) for row in book.rows] == ([(state, since)] if state else [])
    (row,) = book.rows
    assert (row.placed, row.moves, row.losses, row.why) == (2, 1, 1, "its node died")


def test_a_return_to_the_same_node_is_no_move_and_another_node_is() -> None:
    lost = SiteLost("ada", "site 1", "gpu-07", "x", at=150.0)
    assert only([*BEGUN, lost, placed(160.0, "n1")]).moves == 0
    assert only([*BEGUN, lost, placed(160.0, "n2")]).moves == 1
    assert only([*BEGUN, lost, placed(160.0, "n1", host="gpu-08")]).moves == 1


def test_a_place_that_models_share_is_one_site_and_serves_the_latest() -> None:
    events: list[Event] = [
        RunStarted(at=100.0),
        placed(110.0, "n1", site="place 3"),
        ready(120.0, site="place 3"),
        ServerLaunched("bob", on="place 3", seconds=5.0, at=150.0),
        SiteLost("bob", "place 3", "gpu-07", "its node died", at=170.0),
        replace(placed(180.0, "n2", site="place 3"), model="cyd"),
        ServerLaunched("cyd", on="place 3", seconds=5.0, at=190.0),
    ]
    served = [only(events[:end]).model for end in range(2, 8)]
    assert served == ["ada", "ada", "bob", "bob", "cyd", "cyd"]
    row = only(events)
    assert (row.state, row.since, row.moves, row.losses) == ("serving", 190.0, 1, 1)
