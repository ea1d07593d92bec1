"""The scores of a request without content, which a verifier's are compared with: asked for once, and stored.

They come before the first answer, so that a server that cannot verify is found before anything is spent on answers. A
request for them counts at its worst before it is sent, and each further one if a reply was lost.
"""

from collections.abc import Callable

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.graders.asking import VerifierPool
from adaptive_eval.graders.pool import Grading
from adaptive_eval.graders.verifier import LabelScores
from adaptive_eval.machine.charges import NO_MODEL, Charge, ChargeKind
from adaptive_eval.machine.records import Note
from adaptive_eval.notes.grading import BaselineAsked
from adaptive_eval.store.write import RunStore


def cost_of_baseline(grading: Grading, store: RunStore) -> Cost:
    """What a request for these scores may cost; nothing if none is needed."""
    needed = isinstance(grading, VerifierPool) and _stored_baseline(grading, store) is None
    return grading.lost if needed else NO_COST


def _stored_baseline(grading: VerifierPool, store: RunStore) -> LabelScores | None:
    notes = [note.body for _, note in store.reader.notes() if note.kind == BaselineAsked.KIND]
    bodies = [body for body in notes if body.get("asked_as") == grading.verifier.asked_as]
    return LabelScores(tuple(bodies[-1]["scores"]), frozenset(bodies[-1]["unseen"])) if bodies else None


async def take_baseline(grading: Grading, store: RunStore, can_afford: Callable[[Cost], bool]) -> None:
    """Give a verifier the scores that the run has stored for it, or else ask for them; other graders need nothing."""
    if not isinstance(grading, VerifierPool):
        return
    if (stored := _stored_baseline(grading, store)) is not None:
        grading.scores = stored
        return

    def charge(cost: Cost) -> Charge:
        return Charge(ChargeKind.BASELINE, "verdict", NO_MODEL, 1, cost)

    async def reserve() -> bool:
        if not can_afford(store.reader.spent().plus(grading.lost)):
            return False
        store.append(charge(grading.lost))
        return True

    if not await reserve():
        raise ConfigError(
            "budget: does not cover even one request to the verifier; raise it, or set grader.max_answer_bytes lower"
        )
    scores, cost = await grading.ask_baseline(reserve)
    body = {"asked_as": grading.verifier.asked_as, "scores": [*scores.values], "unseen": sorted(scores.unseen)}
    unused = cost.plus(grading.lost.times(-1))  # that of the request which was answered is known now
    store.append(charge(unused), Note(BaselineAsked.KIND, None, body))
    grading.scores = scores
