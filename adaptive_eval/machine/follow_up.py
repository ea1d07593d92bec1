"""The reaction to each kind of failed request."""

from enum import StrEnum


class RequestFailure(StrEnum):
    """Why a request has no answer. A supply names it; what follows is in `follow_up`."""

    REFUSED = "refused"
    """Its servers refuse it, and would refuse it again."""
    COPIED = "copied"
    """Its servers give responses to other requests: no answer of this model counts."""
    UNAVAILABLE = "unavailable"
    """No server could be reached, or every attempt has failed."""
    NOT_ALLOWED = "not_allowed"
    """An attempt was lost, and it may not be repeated."""
    CUT_OFF = "cut_off"
    """It was cancelled while a server had it."""
    NOT_SENT = "not_sent"
    """It was cancelled before any server had it."""
    LOST = "lost"
    """It may have been answered, and the answer is lost; the supply does not repeat it itself."""
    GONE = "gone"
    """A supply does not have it any more: an earlier start has sent it."""


class FollowUp(StrEnum):
    """The machine's reaction to a failed request."""

    ASK_AGAIN = "ask again"
    SET_ASIDE = "set aside"
    END_RUN = "end the run"


LASTING = frozenset({RequestFailure.REFUSED, RequestFailure.COPIED, RequestFailure.UNAVAILABLE})
"""Failures that further requests would meet as well; after all others the trials are asked again."""
MAY_HAVE_COST = frozenset({RequestFailure.CUT_OFF, RequestFailure.LOST, RequestFailure.GONE})
"""Failures after which an answer may have been generated that nobody gets."""


def follow_up(kind: RequestFailure, *, has_answered: bool, is_paused: bool) -> FollowUp:
    """The reaction to a failure of a model that has answered before or not, and that is paused or not.

    Nobody waits for a paused model, so its failure is not held against it. A refusal of the very first request means
    that the configuration is wrong.
    """
    if is_paused or kind not in LASTING:
        return FollowUp.ASK_AGAIN
    return FollowUp.END_RUN if kind is RequestFailure.REFUSED and not has_answered else FollowUp.SET_ASIDE


REFUSALS_SECONDS = 2.0
"""How long a run goes on after a refusal that ends it, to report those of other models, too."""
FIRST_ANSWERS = 12
"""A grader that has failed on this many answers of a start, and has graded none, is taken to fail on all."""
FIRST_IN_FLIGHT = 4
"""Answers in flight of a model whose answers are lost without a grade, until one of its answers has one."""
EXCEEDED = (
    "an answer has {} tokens, and at most {} were reserved for it (prompt and max_tokens): its server does not keep to "
    "max_tokens, so no limit can hold. Fix it and start over, or remove the limits"
)
PROMPT_EXCEEDED_TEXT = (
    "an answer used {} tokens with its prompt, and at most {} were expected: its server adds to prompts; from now on "
    "limits reserve that, too, for each answer"
)
VERDICT_EXCEEDED = (
    "a verdict used {} tokens, and at most {} were reserved for it: the server of the judge does not keep to "
    "grader.sampling.max_tokens, so no limit can hold. Fix it and run the same command, or remove the limits"
)
