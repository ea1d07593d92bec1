"""The way of all records of a run to the store and to the observer."""

from collections.abc import Sequence

from adaptive_eval.core import Plan
from adaptive_eval.core.types import Look
from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.meter import RunMeter
from adaptive_eval.scheduler.types import Observer
from adaptive_eval.store import Event, Store
from adaptive_eval.store.looks import plain_look
from adaptive_eval.store.roster import Names
from adaptive_eval.supply.happenings import Say


class RunJournal:
    """Records events and looks; `committer` takes trials, verdicts and requests."""

    def __init__(self, store: Store, meter: RunMeter, observer: Observer, say: Say) -> None:
        self.store, self.meter, self.observer = store, meter, observer
        self.committer = Committer(store, say, elapsed=meter.elapsed, held=meter.times.held_times)

    def note(self, event: Event) -> None:
        """Record an event, and tell the observer."""
        self.meter.hear(event)
        self.committer.add(events=[event])
        self.observer.happened(event)

    def note_looks(self, looks: Sequence[Look], names: Names, plan: Plan) -> None:
        """Record looks."""
        if looks:
            capped = plan.has_capped_opening
            self.committer.add(looks=[plain_look(look, tuple(names), capped_opening=capped) for look in looks])

    async def safe(self) -> None:
        await self.committer.safe()
