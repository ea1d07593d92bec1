"""Comparing an answer with another one: in both orders, so that a judge that likes a place moves no score.

What is said of the one order and of the other is one verdict where it is the same answer. Where it is not, the verdict
depends on the order, and is a tie.
"""

from collections.abc import Sequence
from typing import NamedTuple

from adaptive_eval.graders.ballots import VERDICT, BallotField, Said
from adaptive_eval.graders.rubric import CategoryConfig, RubricConfig

FIRST, SECOND = "first", "second"
"""Where the two answers stand in a transcript."""
BETTER, TIE, WORSE = "better", "tie", "worse"
"""What the answer that is graded is beside the other."""
OUTCOMES = (WORSE, TIE, BETTER)
"""The worst first."""
PLACES = (
    (FIRST, "the first answer is better"),
    (SECOND, "the second answer is better"),
    (TIE, "neither is better than the other"),
)
TASK = "You compare two answers to a question. The order in which they stand says nothing of them."
COMPARED = (BallotField(VERDICT, tuple(name for name, _ in PLACES)),)
COMPARISON_RUBRIC = RubricConfig(
    categories=(
        CategoryConfig(name=BETTER, weight=1.0, when={VERDICT: BETTER}),
        CategoryConfig(name=TIE, weight=0.5, when={VERDICT: TIE}),
        CategoryConfig(name=WORSE, weight=0.0),
    )
)
"""The share of comparisons that are won, a tie as half of one."""


class BothOrders(NamedTuple):
    """What both orders say together."""

    verdict: str
    order_dependent: bool
    """Each order has another verdict: it counts as a tie."""
    prefers_first: float
    """How much oftener the first place was preferred than the second: from -1 to 1; 0 where both orders agree."""


def compared(replies: Sequence[Said]) -> BothOrders:
    """From the verdict where the answer stands first, and that where it stands second."""
    ((forward,), (backward,)) = replies
    one = {FIRST: BETTER, SECOND: WORSE}.get(forward, TIE)
    other = {FIRST: WORSE, SECOND: BETTER}.get(backward, TIE)
    towards = sum((said == FIRST) - (said == SECOND) for said in (forward, backward)) / 2.0
    return BothOrders(one if one == other else TIE, one != other, towards)
