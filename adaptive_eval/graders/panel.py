"""Further judges beside the first: each gives as many votes on every answer, and all votes count alike.

Judges have faults of their own, and models that were trained alike have them in common. What is asked, and how replies
are read, is said once for all of them; each has a server, and prices and limits of its own.
"""

from pydantic import Field

from adaptive_eval.endpoints.types import Limits, Sampling
from adaptive_eval.graders.asked import ChatServer
from adaptive_eval.sections import Price, Section

MOST_FURTHER = 8


class FurtherJudge(Section):
    """A judge beside the first, which is asked the same."""

    server: ChatServer
    """Where it is served, and under which name; `api` is chat."""
    sampling: Sampling | None = None
    """How its verdicts are drawn; default: as those of the first."""
    concurrency: Limits | None = None
    """What its servers are asked to bear; default: as much as those of the first."""
    price: Price | None = None
    """Of its tokens."""
    gpus: float | None = Field(None, gt=0)
    """GPUs that serve it."""
