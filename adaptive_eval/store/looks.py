"""Looks as plain values with names, as they are stored and published.

`trials.max` may be changed after looks were taken. The event of the changed configuration, stored in the same
transaction, records that and how many looks there were.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard, cast

from adaptive_eval.core.types import Look, PairVerdict, Verdict
from adaptive_eval.errors import StoreError
from adaptive_eval.store import StoredLook
from adaptive_eval.store.events import events_of_kind
from adaptive_eval.store.events.event import Event
from adaptive_eval.store.events.lives import SettingsChanged
from adaptive_eval.store.roster import Names

PATH = "trials.max"


class HorizonChange(NamedTuple):
    """A recorded change of the horizon."""

    was: int
    now: int
    looks: int
    at: float


def changed_horizons(events: Sequence[Event]) -> Iterator[HorizonChange]:
    """Every change of the horizon after the first look."""
    for event in events_of_kind(events, SettingsChanged):
        for change in event.changes:
            if change.path == PATH and _is_horizon(change.was) and _is_horizon(change.now) and event.looks:
                yield HorizonChange(change.was, change.now, event.looks, event.at)


def _is_horizon(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value >= 1


def plain_look(look: Look, models: Sequence[str], *, capped_opening: bool) -> StoredLook:
    """Convert a look to plain values; `capped_opening`: caps allowed only `trials.min` in the first round."""
    return StoredLook(
        look.index,
        {
            "models": list(models),
            "order": [models[model] for model in look.order],
            "trials": list(look.trials),
            "tiers": list(look.tiers),
            "scores": list(look.scores),
            "sigmas": list(look.sigmas),
            "comparisons": [plain_verdict(pair, models) for pair in look.comparisons],
            **({"capped_opening": True} if capped_opening else {}),
        },
    )


def plain_verdict(pair: PairVerdict, models: Sequence[str]) -> dict[str, object]:
    """Convert a comparison of a look to plain values."""
    values = pair._asdict()
    values["better"] = models[pair.better]
    values["worse"] = None if pair.worse is None else models[pair.worse]
    values["verdict"] = str(pair.verdict)
    return values


class NamedLook(NamedTuple):
    """A look with the names of its models."""

    models: Names
    look: Look


def read_look(stored: StoredLook) -> NamedLook:
    """Restore a look from plain values; raises `StoreError` if they have another form."""
    body = _checked_body(stored)
    models = Names(body["models"])
    look = Look(
        index=stored.number,
        trials=tuple(body["trials"]),
        order=tuple(map(models.position, body["order"])),
        tiers=tuple(body["tiers"]),
        scores=tuple(body["scores"]),
        sigmas=tuple(body["sigmas"]),
        comparisons=tuple(_verdict(pair, models) for pair in body["comparisons"]),
    )
    return NamedLook(models, look)


def trials_at(stored: StoredLook | None) -> dict[str, int]:
    """The number of trials of each model on which a look was taken; empty before the first look."""
    if stored is None:
        return {}
    body = _checked_body(stored)
    return dict(zip(body["models"], body["trials"], strict=True))


def _checked_body(stored: StoredLook) -> dict[str, Any]:
    body = cast(dict[str, Any], stored.body)
    if not _is_look(body):
        raise StoreError(f"look {stored.number} is damaged: it is not a valid look; restore a copy of the run")
    return body


def _verdict(plain: Mapping[str, Any], models: Names) -> PairVerdict:
    """Convert a stored verdict; fields of later versions are ignored."""
    known: dict[str, Any] = {name: plain[name] for name in PairVerdict._fields if name in plain}
    known["better"] = models.position(plain["better"])
    known["worse"] = None if plain["worse"] is None else models.position(plain["worse"])
    return PairVerdict(**(known | {"verdict": Verdict(plain["verdict"])}))


def _is_look(body: Mapping[str, Any]) -> bool:
    """Whether the values have the form of a stored look."""
    models = body.get("models")
    if not _is_list_of(models, str) or len(set(models)) < len(models):
        return False
    known, number = set(models), len(models)
    whole = all(_is_list_of(body.get(name), int) and len(body[name]) == number for name in ("trials", "tiers"))
    real = all(_is_list_of(body.get(name), int, float) and len(body[name]) == number for name in ("scores", "sigmas"))
    ordered = _is_list_of(body.get("order"), str) and set(body["order"]) <= known
    pairs = body.get("comparisons")
    return whole and real and ordered and _is_list_of(pairs, dict) and all(_is_verdict(one, known) for one in pairs)


def _is_verdict(plain: Mapping[str, Any], models: set[str]) -> bool:
    named = all(isinstance(plain.get(name), str | None) for name in ("better", "worse", "verdict"))
    measured = all(isinstance(plain.get(name), int | float) for name in ("z", "boundary", "information"))
    measured &= all(isinstance(plain.get(name, 0.0), int | float) for name in ("rho", "power", "trials_needed"))
    if not (named and measured and isinstance(plain.get("reversed", False), bool)):
        return False
    return plain.get("better") in models and plain.get("worse") in {*models, None} and plain["verdict"] in set(Verdict)


def _is_list_of(values: object, *kinds: type) -> TypeGuard[list[Any]]:
    return isinstance(values, list) and all(isinstance(value, kinds) for value in values)
