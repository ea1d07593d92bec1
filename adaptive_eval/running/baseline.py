"""The scores of a request without content, which a verifier's are read beside: asked for once, and kept with the run.

They come before the first answer, so that a server that cannot verify is told before anything is spent on answers. A
request for them counts at its worst before it is sent, and each further one where a reply was lost.
"""

from collections.abc import Callable

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.core.types import Cost
from adaptive_eval.graders.verifier import LabelScores
from adaptive_eval.graders.verifying import VerifierPool
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.store import BaselineAsked, CommitBatch, Event, Store, events_of_kind
from adaptive_eval.store.spending import total_spent


async def take_baseline(grading: Grading, store: Store, bears: Callable[[Cost], bool]) -> list[Event]:
    """Give a verifier what the run has kept for it, else what it says now, as an event; other graders need nothing."""
    if not isinstance(grading, VerifierPool):
        return []
    baselines = events_of_kind(store.reader.events(), BaselineAsked)
    if kept := [one for one in baselines if one.asked_as == grading.asked_as and one.scores]:
        grading.scores = LabelScores(tuple(kept[-1].scores), frozenset(kept[-1].unseen))
        return []
    worst = BaselineAsked(grading.asked_as, (), (), *grading.lost)

    async def reserve() -> bool:
        if not bears(total_spent(store.reader).plus(grading.lost)):
            return False
        store.commit(CommitBatch(events=[worst]))
        return True

    if not await reserve():
        raise ConfigError(
            "budget: does not cover even one request to the verifier; raise it, or set grader.max_answer_bytes lower"
        )
    found = await grading.ask_baseline(reserve)
    over = found.cost.plus(grading.lost.times(-1))
    event = BaselineAsked(found.asked_as, found.scores.values, tuple(sorted(found.scores.unseen)), *over)
    store.commit(CommitBatch(events=[event]))
    grading.scores = found.scores
    return [event]
