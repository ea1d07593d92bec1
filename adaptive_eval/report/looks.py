"""Looks as plain values with names, as they are stored and published.

`trials.max` may be changed after looks were taken. The event of the changed configuration, stored in the same
transaction, records that and how many looks there were.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeGuard, cast

from pydantic import TypeAdapter

from adaptive_eval.base.errors import DamagedValue
from adaptive_eval.base.roster import Names
from adaptive_eval.core.types import Look, PairVerdict
from adaptive_eval.notes import events_of_kind
from adaptive_eval.notes.event import Event
from adaptive_eval.notes.grading import TrialsRegraded
from adaptive_eval.notes.lives import SettingsChanged
from adaptive_eval.store.read import StoredLook

PATH = "trials.max"


class HorizonChange(NamedTuple):
    """A recorded change of the horizon."""

    was: int
    at: float


def changed_horizons(events: Sequence[Event]) -> Iterator[HorizonChange]:
    """Every change of the horizon after the first look; after new grades all looks were taken under the last one."""
    anew = max(
        (at for at, event in enumerate(events) if isinstance(event, TrialsRegraded) and event.opening is not None),
        default=0,
    )
    for event in events_of_kind(events[anew:], SettingsChanged):
        for change in event.changes:
            if change.path == PATH and _is_horizon(change.was) and _is_horizon(change.now) and event.looks:
                yield HorizonChange(change.was, event.at)


def _is_horizon(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value >= 1


def plain_look(look: Look, models: Sequence[str], *, capped_opening: bool) -> dict[str, object]:
    """Convert a look to plain values; `capped_opening`: caps allowed only `trials.min` in the first round."""
    return {
        "models": list(models),
        "order": [models[model] for model in look.order],
        "trials": list(look.trials),
        "tiers": list(look.tiers),
        "scores": list(look.scores),
        "sigmas": list(look.sigmas),
        "comparisons": [plain_verdict(pair, models) for pair in look.comparisons],
        **({"capped_opening": True} if capped_opening else {}),
    }


def plain_verdict(pair: PairVerdict, models: Sequence[str]) -> dict[str, object]:
    """Convert a comparison of a look to plain values."""
    values = pair._asdict()
    values["first"] = models[pair.first]
    values["second"] = None if pair.second is None else models[pair.second]
    values["verdict"] = str(pair.verdict)
    return values


class NamedLook(NamedTuple):
    """A look with the names of its models."""

    models: Names
    look: Look


def read_look(stored: StoredLook) -> NamedLook:
    """Restore a look from plain values; raises `DamagedValue` if they have another form."""
    body = cast(dict[str, Any], stored.body)
    names, values = _parsers()
    try:
        models = Names(names.validate_python(body["models"]))
        placed = {
            "index": stored.number,
            "order": list(map(models.position, body["order"])),
            "comparisons": [_verdict_of_positions(pair, models) for pair in body["comparisons"]],
        }
        look = values.validate_python({**body, **placed})
        if {len(column) for column in (set(models), look.trials, look.tiers, look.scores, look.sigmas)} != {
            len(models)
        }:
            raise ValueError("it has other models than values")
    except (LookupError, TypeError, ValueError) as error:
        raise DamagedValue(f"look {stored.number} is not a valid look") from error
    return NamedLook(models, look)


@cache
def _parsers() -> tuple[TypeAdapter[list[str]], TypeAdapter[Look]]:
    """Parsers of the models and of the values of a look, created when the first one is read."""
    return TypeAdapter(list[str]), TypeAdapter(Look)


def _verdict_of_positions(plain: Mapping[str, Any], models: Names) -> dict[str, Any]:
    """Convert a stored verdict to values for `PairVerdict`; fields of later versions are ignored."""
    values: dict[str, Any] = {name: plain[name] for name in PairVerdict._fields}
    second = None if values["second"] is None else models.position(values["second"])
    return values | {"first": models.position(values["first"]), "second": second}
