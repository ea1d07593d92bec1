"""Writes settings as the text of a configuration file."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from adaptive_eval.config.document import (
    Document,
    ScalarResolver,
    escape_variables,
    json_for_yaml,
    read_document,
    read_environment,
)
from adaptive_eval.config.normalise import apply_override, expand_short_forms
from adaptive_eval.config.problems import KeyPath

MAX_WIDTH = 110
HEADING = "# Printed by `adaptive-eval run --print-config`. Paths are relative to the folder of this file.\n"


class _Dumper(ScalarResolver, yaml.SafeDumper):
    """Quotes each text that a configuration would read as something else."""


def settings_text(settings: Mapping[str, object], overrides: Iterable[str]) -> str:
    """Settings with `--set` overrides as YAML, with the names of environment variables, not their values.

    They must be valid, since that keeps secrets out of them.
    """
    environment = read_environment(Path())
    document = read_document(json_for_yaml(settings), environment)
    expand_short_forms(document)
    for override in overrides:
        apply_override(document, override, environment)
    return HEADING + yaml_text(_with_variables(document, document.tree, ()))


def yaml_text(tree: Mapping[str, object]) -> str:
    """Settings as YAML, with variables as they are."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=MAX_WIDTH)


def _with_variables(document: Document, value: Any, path: KeyPath) -> Any:
    """The value as it must be written: with the variables that it came from, and `$${X}` for the text `${X}`."""
    if isinstance(value, dict):
        return {key: _with_variables(document, inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_variables(document, inner, (*path, number)) for number, inner in enumerate(value)]
    if (raw := document.raw.get(document.origin(path))) is not None:
        return raw
    return escape_variables(value) if isinstance(value, str) else value
