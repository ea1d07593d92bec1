"""Keeps results.json up to date while a run goes on."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from adaptive_eval.record.build import build_results
from adaptive_eval.record.results import Results, Unjudged
from adaptive_eval.record.results_file import write_results
from adaptive_eval.record.snapshot import Snapshot

SHARE_OF_TIME = 0.1
"""The largest share of the time that goes into results.json: with thousands of questions it takes a while to write, and
where looks follow each other faster than that, only the latest is written."""
BETWEEN_LOOKS_SECONDS = 10.0
"""Trials whose round is not complete yet are in results.json, too, marked as not judged."""


class Publisher:
    """Writes the results after looks and now and then between them, one file at a time and off the loop."""

    def __init__(self, directory: Path, take: Callable[[], Snapshot | Unjudged | None]) -> None:
        self._directory = directory
        self._take = take
        self._due = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="results-writer")

    def looked(self) -> None:
        """Publish soon: a look was taken."""
        self._due.set()

    async def run(self) -> None:
        """Write until cancelled; raises the `StoreError` of a write that failed."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BETWEEN_LOOKS_SECONDS):
                    await self._due.wait()
            self._due.clear()
            began = time.monotonic()
            await self.publish()
            await asyncio.sleep((time.monotonic() - began) * (1.0 / SHARE_OF_TIME - 1.0))

    async def publish(self) -> Results | None:
        """Write the results as they are now, if there are any; None before the first look."""
        known = self._take()
        if known is None:
            return None
        # shielded: a write that has begun ends before another one begins
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, self._write, known))

    def _write(self, known: Snapshot | Unjudged) -> Results | None:
        results = build_results(known) if isinstance(known, Snapshot) else known
        write_results(self._directory, results)
        return results if isinstance(results, Results) else None

    def close(self) -> None:
        """Wait for the writer's thread to end."""
        self._thread.shutdown()
