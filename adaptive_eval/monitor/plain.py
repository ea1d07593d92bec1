"""Plain values as JSON, whatever a model wrote."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import orjson

from adaptive_eval.store.packing import clean


def to_json(value: object) -> bytes:
    """The value as JSON in UTF-8; halves of a surrogate pair, which that cannot hold, become question marks."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_cleaned(asdict(value) if is_dataclass(value) and not isinstance(value, type) else value))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): _cleaned(one) for key, one in value.items()}
    return [_cleaned(one) for one in value] if isinstance(value, list | tuple) else value
