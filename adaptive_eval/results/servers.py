"""What a run has started itself, and what its swaps took: read off its events."""

from collections.abc import Iterable

from adaptive_eval.results.types import ServerRow, TurnsRow
from adaptive_eval.store import Event, EventKind


def server_rows(events: Iterable[Event]) -> tuple[ServerRow, ...]:
    """The servers that came up."""
    rows: dict[str, ServerRow] = {}
    for event in _launched(events):
        name, version = str(event.body["model"]), event.body["version"]
        starts = rows[name].starts + 1 if name in rows else 1
        command = event.body["command"]
        assert isinstance(command, list)
        rows[name] = ServerRow(name, tuple(map(str, command)), None if version is None else str(version), starts)
    return tuple(rows.values())


def turns_rows(events: Iterable[Event]) -> tuple[TurnsRow, ...]:
    """The places that models have shared; one that served a single model was not shared."""
    swaps: dict[str, list[Event]] = {}
    for event in _launched(events):
        if "on" in event.body:
            swaps.setdefault(str(event.body["on"]), []).append(event)
    rows = (_turns(on, here) for on, here in swaps.items())
    return tuple(row for row in rows if row.models > 1)


def _turns(on: str, swaps: list[Event]) -> TurnsRow:
    seconds = sum(float(str(event.body["seconds"])) for event in swaps)
    return TurnsRow(on, len({event.body["model"] for event in swaps}), len(swaps), seconds)


def _launched(events: Iterable[Event]) -> Iterable[Event]:
    return (event for event in events if event.kind is EventKind.LAUNCHED)
