"""The event loop of a run: uvloop's where it is installed (the extra `fast`), since it does the same for less CPU."""

import asyncio
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_to_end(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end, in a loop of its own."""
    factory = None
    if find_spec("uvloop") is not None:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
