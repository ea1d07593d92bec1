"""What a judge's verdicts cost, under the caps: spent at the most from before they are asked for, until they are there.

An answer is stored with the most that its verdict may cost on top, and the verdict takes back what it did not use. What
a later start finds so was asked for and lost, as far as anybody knows: an event says what it counts as, and as much is
reserved again before it is asked for again. A reply that is lost on the way counts at its worst as soon as that is
noticed, as an answer does. Where no cap counts it nothing is reserved, and stored is what the replies that came have
used.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again
from adaptive_eval.errors import Unavailable
from adaptive_eval.graders.asked import USED
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.scheduler.ledger import (
    LostAnswers,
    cost_of,
    never_stored,
    spent_on_baseline,
    spent_on_greedy,
    spent_on_opponent,
    spent_on_unused,
    total_cost,
)
from adaptive_eval.scheduler.types import Decider, Lane
from adaptive_eval.store import (
    AnswersLost,
    CommitBatch,
    Event,
    Regrade,
    RunReader,
    Store,
    TrialRecord,
)

BEYOND = (
    "a verdict has cost {} tokens, and at most {} were reserved for it: the server that gives verdicts does not "
    "keep to grader.sampling.max_tokens, and no cap can hold; mend it and run the same command, or remove the caps"
)

FIRST_ANSWERS = 12
"""A grader that has failed on so many answers, and has given no verdict yet, is taken to fail on all."""
MUTE = (
    "no verdict has come on any of the first {} answers, so nothing more is asked: {}\n"
    "Every answer is stored. Mend the grader or its server; the same command then has these answers graded first."
)


def require_kept(verdict: Regrade, reserved: Cost, vote: Cost) -> None:
    """Raise `Unavailable` where a verdict has cost more than was reserved for it; `vote` is one reply to it, at most.

    What was lost on the way counts in whole votes.
    """
    if 0 < reserved.tokens < verdict.cost.tokens - vote.tokens:
        raise Unavailable(BEYOND.format(verdict.cost.tokens, reserved.tokens))


class VerdictCosts:
    """What is reserved for a verdict, and what the verdict then counts as."""

    def __init__(
        self, grading: Grading, store: Store, losses: LostAnswers, controller: Decider, lanes: Sequence[Lane]
    ) -> None:
        counted = grading.lasting and losses.ledger is not None
        self.reserved = grading.lost if counted else NO_COST
        """For all votes on one answer."""
        self._vote = grading.lost_vote if counted else NO_COST
        self._counted = counted
        self._store, self._losses, self._controller = store, losses, controller
        self._heard = not grading.lasting
        """A verdict has come, in this start or before; a grader that asks nobody may fail on what it likes."""
        self._failed = 0
        self._lanes = {lane.name: lane for lane in lanes}
        self._names = [lane.name for lane in lanes]

    def require_kept(self, verdict: Regrade) -> None:
        """Raise `Unavailable` where a verdict, as it came, shows that the caps cannot hold, or that none ever comes."""
        require_kept(verdict, self.reserved, self._vote)
        self._failed += verdict.failed
        self._heard = self._heard or bool(verdict.signals.get(USED[0]))
        if self._failed < FIRST_ANSWERS or self._heard or self._controller.finished is not None:
            return  # at a cap, lost replies are not asked for again
        self._heard = any(use.cost.tokens for use in self._store.reader.grading_uses().values())
        if not self._heard:
            raise Unavailable(MUTE.format(self._failed, verdict.grader_error))

    def used(self, verdict: Regrade) -> Regrade:
        """The verdict, taking back what it did not use of what was reserved for it."""
        return verdict._replace(cost=verdict.cost.plus(self.reserved.times(-1)))

    def asked_again(self, model: int, safe: Callable[[], Awaitable[None]]) -> Again | None:
        """Counts a reply that was lost, and says whether the caps bear another one when that is on disk."""
        if not self._counted:
            return None

        async def again() -> bool:
            self._losses.lose(model, self._loss(self._names[model]))
            await safe()
            return self._controller.finished is None

        return again

    # -- before anything is restored: of stored answers that have no verdict ------------------------------------------

    def give_up(self, records: Iterable[TrialRecord], happened: Callable[[Event], None]) -> None:
        """Write down as lost what was reserved for verdicts that an earlier start has not seen come."""
        lost, rest = dict[str, AnswersLost](), list[Regrade]()
        for one in records:
            before = lost.get(one.model, AnswersLost(one.model, killed=True))
            more = one.cost.plus(self._lanes[one.model].cost(one.answer).times(-1))
            if one.waits and more.tokens > 0:
                total = cost_of(before).plus(more)
                lost[one.model] = AnswersLost(one.model, 0, *total, killed=True, verdicts=before.verdicts + 1)
                rest.append(Regrade(*_place(one), None, {}, None, one.grader_error, more.times(-1)))
        if rest:
            self._store.commit(CommitBatch(events=list(lost.values()), verdicts=rest))
            for event in lost.values():
                happened(event)

    def affordable(self, records: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
        """As many of them, from the first on, as the caps let be judged; it is on disk that they will be."""
        if not self._counted:
            return records
        number = len(records)
        while number and not self._bears(self.reserved.times(number)):
            number -= 1
        reserves = [Regrade(*_place(one), None, {}, None, one.grader_error, self.reserved) for one in records[:number]]
        if reserves:
            self._store.commit(CommitBatch(verdicts=reserves))
        return records[:number]

    def stored_again(self, happened: Callable[[Event], None]) -> Callable[[str], Again | None]:
        """What `asked_again` is then, by the name of the model."""

        def of(model: str) -> Again | None:
            async def again() -> bool:
                event = self._loss(model)
                self._store.commit(CommitBatch(events=[event]))
                happened(event)
                return self._bears(NO_COST)

            return again if self._counted else None

        return of

    def _bears(self, more: Cost) -> bool:
        """Whether the caps bear this on top of all that was spent, for whichever model."""
        assert self._losses.ledger is not None
        entered = self._losses.ledger.entered(self._store.reader)
        return self._controller.can_afford(all_spent(self._store.reader).plus(entered).plus(more))

    def _loss(self, model: str) -> AnswersLost:
        return AnswersLost(model, 0, *self._vote, verdicts=1)


def all_spent(reader: RunReader) -> Cost:
    """On stored answers with their verdicts, on those that were lost or not wanted, on a verifier's baseline, on what
    was asked first (greedy answers, the opponent's), and on verdicts of a `regrade` that did not come to its end."""
    events = reader.events()
    first = [one for one in (spent_on_greedy(events), spent_on_opponent(events)) if one is not None]
    total = total_cost([*reader.sums(), *never_stored(events), *first])
    return total.plus(spent_on_baseline(events)).plus(spent_on_unused(events))


def _place(one: TrialRecord) -> tuple[str, str, int]:
    return one.model, one.question, one.trial
