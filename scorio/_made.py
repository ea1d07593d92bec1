"""Functions that are made from a table: they have the name, arguments and docstring of functions that are written."""

import inspect
from collections.abc import Callable
from typing import Any


def bound_arguments(function: str, signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by their names, without defaults; raises `TypeError` as Python does."""
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"{function}() {error}") from None


def present(function: Callable[..., Any], name: str, signature: inspect.Signature, docstring: str) -> None:
    """Give a function what `help` and other readers show of it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = docstring
    function.__signature__ = signature  # type: ignore[attr-defined]
