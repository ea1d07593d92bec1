"""Packages that not everyone needs: they are imported when they are used, and an error says how to get them."""

from importlib import import_module
from typing import Any

from adaptive_eval.errors import ConfigError


def load_extra(module: str, extra: str, what: str) -> Any:
    """A module of an extra; raises `ConfigError` where it is not installed. `what` are the things that need it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} need an extra; pip install 'adaptive-eval[{extra}]'") from error


def load_pyarrow() -> tuple[Any, Any]:
    """pyarrow, and its module for Parquet files."""
    parquet = load_extra("pyarrow.parquet", "parquet", "Parquet files")
    return import_module("pyarrow"), parquet
