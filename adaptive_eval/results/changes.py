"""What changed settings do to the promise of a run: what was changed when, and what that costs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from adaptive_eval.core.horizon import Extension
from adaptive_eval.core.rules import Anytime, Rule, Sequential
from adaptive_eval.results.types import Caution
from adaptive_eval.store import Event, EventKind
from adaptive_eval.store.horizons import changed_horizons

DECIDING = ("stopping.", "objective.", "prior_evidence")
"""Settings of what is called, and when."""
HARMLESS = "stopping.futility"
"""Giving up sooner or later adds no false call."""
AFRESH = "a run that is begun with the larger horizon (--fresh) has all of it, and rule: anytime needs none"


def horizon_cautions(rule: Rule, extensions: Sequence[Extension], events: Sequence[Event]) -> Iterator[Caution]:
    """Each change of the horizon after a look, and what it costs."""
    changes = list(changed_horizons(events))
    dates = [_date(change.at) for change in changes if change.looks is not None]
    for number, extension in enumerate(extensions):
        date = f" ({dates[number]})" if number < len(dates) else ""
        way = "raised" if extension.now > extension.before else "lowered"
        looks = f"look {extension.looks}"
        said = f"horizon {way} from {extension.before} to {extension.now} trials a question after {looks}{date}"
        yield Caution("horizon", None, f"{said}: {_price(rule, extension)}")
    for change in changes:
        if change.looks is None:
            yield Caution(
                "horizon",
                None,
                f"horizon changed from {change.was} to {change.now} trials a question ({_date(change.at)}) by an "
                "earlier version, which took all looks anew as if it had always been so: calls between equal models "
                "may be more frequent than promised",
            )


def _price(rule: Rule, extension: Extension) -> str:
    if isinstance(rule, Anytime):
        return "the rule needs no horizon, and its promise stands"
    if not isinstance(rule, Sequential):
        return "the rule promises nothing about repeated looks that this could break"
    able = np.isfinite(extension.boundary)
    if not len(able):
        return "nothing was undecided then, and every call stands"
    error = f"{2.0 * (1.0 - rule.confidence):.3g}"
    if not able.any():
        return (
            f"every undecided comparison had spent its error ({error}) by then, and stays undecided whatever its "
            f"trials show; {AFRESH}"
        )
    left, bound = extension.left[able], extension.boundary[able]
    spent = f", {len(able) - able.sum()} had none left" if not able.all() else ""
    return (
        f"of {len(able)} comparisons of two models that were undecided, each may spend what was left of its error "
        f"({error}) given its looks: {_range(left)}{spent}; at the new horizon |z| must reach "
        f"{_range(bound)} instead of {rule.critical:.3g}, so that the promise stands; {AFRESH}"
    )


def _range(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    least, most = f"{values.min():.2g}", f"{values.max():.2g}"
    return least if least == most else f"{least} to {most}"


def decision_cautions(events: Sequence[Event]) -> Iterator[Caution]:
    """Settings that decide, and were chosen when looks had been taken."""
    for event in events:
        looks = event.body.get("looks")
        if event.kind is not EventKind.CONFIGURED or not isinstance(looks, int) or looks < 1:
            continue
        changes = event.body["changes"]
        assert isinstance(changes, list)
        told = [
            f"{one['path']}: {one['was']} -> {one['now']}"
            for one in changes
            if str(one["path"]).startswith(DECIDING) and one["path"] != HARMLESS
        ]
        if told:
            yield Caution(
                "redecided",
                None,
                f"changed after {looks} looks ({_date(event.at)}): {', '.join(told)}; all looks were taken anew by "
                "these settings, and no promise covers a choice that was made by what earlier looks showed",
            )


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
