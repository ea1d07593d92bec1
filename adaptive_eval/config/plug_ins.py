"""Loads plug-ins: rules, policies and objectives that a configuration names, with their options."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.imports import load_attribute
from adaptive_eval.config.problems import did_you_mean
from adaptive_eval.core.registry import make, parameters_of


def load_plug_in(
    kind: type, key: str, name: str, options: Mapping[str, object], folder: Path, known: Mapping[str, object]
) -> Any:
    """Load the object that a configuration names under `key`.

    Classes and functions are called with their options and with every `known` value they have a parameter for; anything
    else is returned unchanged.
    """
    found: Any = load_attribute(name, folder)
    if isinstance(found, type):
        _require_members(found, kind, key, name, methods=True)
        found = _call_plug_in(found, key, name, options, known)
    elif _missing_member(found, kind):
        found = _call_plug_in(found, key, name, options, known)
    elif options:
        raise ConfigError(
            f"{key}: {name} takes no options, since it is an object and not a class; name its class instead"
        )
    _require_members(found, kind, key, name)
    return found


def _require_members(found: object, kind: type, key: str, name: str, *, methods: bool = False) -> None:
    if lacks := _missing_member(found, kind, methods=methods):
        raise ConfigError(
            f"{key}: {name} is no {kind.__name__.lower()}, since it has no {lacks}; "
            f"see adaptive_eval.core.{kind.__name__}, from which yours may inherit"
        )


def _call_plug_in(found: Any, key: str, name: str, options: Mapping[str, object], known: Mapping[str, object]) -> Any:
    if not callable(found):
        raise ConfigError(f"{key}: {name} must be a class, or a function that makes one, but got {found!r:.80}")
    _check_names(found, key, name, options)
    try:
        return make(found, options, known)
    except Exception as error:  # the user's code may raise anything
        given = f"with the options {dict(options)!r:.200}" if options else "without options"
        raise ConfigError(f"{key}: {name} could not be created {given}: {error}") from error


def _check_names(found: Any, key: str, name: str, options: Mapping[str, object]) -> None:
    asked = parameters_of(found)
    try:
        takes_any = any(one.kind is one.VAR_KEYWORD for one in inspect.signature(found).parameters.values())
    except ValueError:
        takes_any = True
    for option in () if takes_any else options:
        if option not in asked:
            mend = did_you_mean(option, asked, f"it takes {', '.join(asked) or 'none'}")
            raise ConfigError(f"{key.partition('.')[0]}.options.{option} is not an option of {name}; {mend}")


def _missing_member(found: object, kind: type, *, methods: bool = False) -> str:
    """The first member of a Protocol that is missing; only `methods` can be checked on a class."""
    wanted = [
        name for name, value in vars(kind).items() if not name.startswith("_") and (callable(value) or not methods)
    ]
    return next((name for name in wanted if not hasattr(found, name)), "")
