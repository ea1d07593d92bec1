"""Loads plug-ins, which are rules, policies and objectives named in a configuration, with their options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.imports import load_attribute
from adaptive_eval.core.registry import make


def load_plug_in(
    kind: type, key: str, name: str, options: Mapping[str, object], folder: Path, context: Mapping[str, object]
) -> Any:
    """Load the object that a configuration names under `key`.

    Classes and functions are called with their options, and with those `context` values that they have parameters for.
    Other objects are returned unchanged.
    """
    plug_in: Any = load_attribute(name, folder)
    if isinstance(plug_in, type):
        _require_members(plug_in, kind, key, name, methods=True)
        plug_in = _call_plug_in(plug_in, key, name, options, context)
    elif _missing_member(plug_in, kind):
        plug_in = _call_plug_in(plug_in, key, name, options, context)
    elif options:
        raise ConfigError(
            f"{key}: {name} has no options, since it is an object and not a class; name its class instead"
        )
    _require_members(plug_in, kind, key, name)
    return plug_in


def _require_members(plug_in: object, kind: type, key: str, name: str, *, methods: bool = False) -> None:
    if missing := _missing_member(plug_in, kind, methods=methods):
        raise ConfigError(
            f"{key}: {name} is not a valid {kind.__name__.lower()}: it has no {missing}; "
            f"inherit from adaptive_eval.core.{kind.__name__}"
        )


def _call_plug_in(
    plug_in: Any, key: str, name: str, options: Mapping[str, object], context: Mapping[str, object]
) -> Any:
    if not callable(plug_in):
        raise ConfigError(f"{key}: {name} must be a class, or a factory function, but got {plug_in!r:.80}")
    try:
        return make(plug_in, options, context)
    except Exception as error:  # the user's code may raise anything
        given = f"with the options {dict(options)!r:.200}" if options else "without options"
        raise ConfigError(f"{key}: {name} could not be created {given}: {error}") from error


def _missing_member(plug_in: object, kind: type, *, methods: bool = False) -> str:
    """The first member of a Protocol that is missing; only `methods` can be checked on a class."""
    members = [
        name for name, value in vars(kind).items() if not name.startswith("_") and (callable(value) or not methods)
    ]
    return next((name for name in members if not hasattr(plug_in, name)), "")
