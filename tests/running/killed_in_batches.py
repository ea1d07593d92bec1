"""`adaptive-eval` in a process of its own that is killed at a point of a batch's life: POINT, then the arguments.

But for `planned` it is killed only when no batch is on its way to a service, so that it is known which there are.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from adaptive_eval.cli import app
from adaptive_eval.machine.records import Row
from adaptive_eval.machine.trial import ANSWERED, Trial
from adaptive_eval.store.write import RunStore
from adaptive_eval.supplies.batches.anthropic import AnthropicBatches
from adaptive_eval.supplies.batches.calls import BatchCalls, NoBatchAnswer, ServiceBatch
from adaptive_eval.supplies.batches.model import ModelBatches
from adaptive_eval.supplies.batches.openai import OpenAiBatches
from adaptive_eval.supplies.batches.types import BatchState

FORMATS = (OpenAiBatches, AnthropicBatches)
POINTS = ("planned", "created", "pending", "collecting", "stored")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class OnTheirWay:
    """The batches that are noted as planned, and of which the service has not said that it has them."""

    def __init__(self) -> None:
        self._planned = self._created = 0
        create = BatchCalls._create

        async def counted(calls: BatchCalls, batch: ServiceBatch) -> BatchState | NoBatchAnswer:
            self._planned += 1
            try:
                return await create(calls, batch)
            finally:
                self._planned -= 1
                self._die_if_all_are_created()

        BatchCalls._create = counted  # type: ignore[method-assign]

    @property
    def none(self) -> bool:
        return self._planned == 0

    async def die_when_all_are_created(self) -> None:
        """A request that comes this far never gets a reply."""
        self._created += 1
        self._die_if_all_are_created()
        await asyncio.Event().wait()

    def _die_if_all_are_created(self) -> None:
        if self._created and self._created == self._planned:
            die()


def arm(point: str) -> None:
    """Patch the code at that point."""
    on_their_way = OnTheirWay()
    for form in FORMATS:
        create, state = form.create, form.state

        async def killed_create(self: Any, *args: Any, create: Any = create) -> Any:
            if point == "planned":
                die()
            made = await create(self, *args)
            await on_their_way.die_when_all_are_created()
            return made

        async def killed_state(self: Any, *args: Any, state: Any = state) -> Any:
            batch_state = await state(self, *args)
            if on_their_way.none:
                die()
            return batch_state

        if point in ("planned", "created"):
            form.create = killed_create  # type: ignore[method-assign, assignment]
        if point == "pending":
            form.state = killed_state  # type: ignore[method-assign, assignment]
    read, results = ModelBatches._read, []

    def killed_read(self: Any, *args: Any, **named: Any) -> Any:
        results.append(1)
        if len(results) > 5 and on_their_way.none:
            die()
        return read(self, *args, **named)

    commit = RunStore.commit

    def killed_commit(self: RunStore, rows: Sequence[Row], *args: Any, **named: Any) -> Any:
        written = commit(self, rows, *args, **named)
        if on_their_way.none and any(isinstance(row, Trial) and row.state in ANSWERED for _, row in rows):
            die()
        return written

    if point == "collecting":
        ModelBatches._read = killed_read  # type: ignore[method-assign]
    if point == "stored":
        RunStore.commit = killed_commit  # type: ignore[method-assign]


if __name__ == "__main__":
    BatchCalls.first_poll, BatchCalls.longest_poll, BatchCalls.retry_pause = 0.02, 0.05, 0.02
    arm(sys.argv[1])
    sys.argv = ["adaptive-eval", *sys.argv[2:]]
    app()
