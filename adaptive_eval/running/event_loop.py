"""The event loop of a run: uvloop's where it is installed (the extra `fast`), since it does the same for less CPU."""

import asyncio
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_to_end(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end, in a loop of its own."""
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made
