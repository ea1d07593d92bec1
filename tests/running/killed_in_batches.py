"""`adaptive-eval` in a process of its own that is killed at a point of a batch's life: POINT, then the arguments."""

import os
import signal
import sys
from typing import Any

from adaptive_eval.cli import app
from adaptive_eval.endpoints.batches.anthropic import AnthropicBatches
from adaptive_eval.endpoints.batches.openai import OpenAiBatches
from adaptive_eval.endpoints.batches.openrouter import OpenRouterBatches
from adaptive_eval.scheduler.batches import BatchedEndpoint
from adaptive_eval.store import CommitBatch, Store

FORMATS = (OpenAiBatches, AnthropicBatches, OpenRouterBatches)
POINTS = ("planned", "created", "pending", "collecting", "stored")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Patch what happens there."""
    for form in FORMATS:
        create, state = form.create, form.state

        async def killed_create(self: Any, *args: Any, create: Any = create) -> Any:
            if point == "planned":
                die()
            made = await create(self, *args)
            die()
            return made

        async def killed_state(self: Any, *args: Any, state: Any = state) -> Any:
            told = await state(self, *args)
            die()
            return told

        if point in ("planned", "created"):
            form.create = killed_create  # type: ignore[method-assign, assignment]
        if point == "pending":
            form.state = killed_state  # type: ignore[method-assign, assignment]
    deliver, delivered = BatchedEndpoint._deliver, []

    def killed_deliver(self: Any, *args: Any, **named: Any) -> bool:
        delivered.append(1)
        if len(delivered) > 5:
            die()
        return deliver(self, *args, **named)

    commit = Store.commit

    def killed_commit(self: Store, batch: CommitBatch) -> None:
        commit(self, batch)
        if batch.trials:
            die()

    if point == "collecting":
        BatchedEndpoint._deliver = killed_deliver  # type: ignore[method-assign]
    if point == "stored":
        Store.commit = killed_commit  # type: ignore[method-assign]


if __name__ == "__main__":
    arm(sys.argv[1])
    sys.argv = ["adaptive-eval", *sys.argv[2:]]
    app()
