"""Further judges beside the first: each gives as many votes on every answer, and all votes count alike.

Judges have faults of their own, and models that were trained alike have them in common. What is asked, and how replies
are read, is said once for all of them; each has a server, and prices and limits of its own.
"""

from pydantic import Field, field_validator

from adaptive_eval.endpoints.types import EndpointConfig, Limits, Sampling
from adaptive_eval.graders.asked import chats
from adaptive_eval.sections import Price, Section

MOST_FURTHER = 8


class FurtherJudge(Section):
    """A judge beside the first, which is asked the same."""

    server: EndpointConfig
    """Where it is served, and under which name; `api` is chat."""
    sampling: Sampling | None = None
    """How its verdicts are drawn; default: as those of the first."""
    concurrency: Limits | None = None
    """What its servers are asked to bear; default: as much as those of the first."""
    price: Price | None = None
    """Of its tokens."""
    gpus: float | None = Field(None, gt=0)
    """GPUs that serve it."""

    @field_validator("server")
    @classmethod
    def _chats(cls, server: EndpointConfig) -> EndpointConfig:
        return chats(server)


def agreement_signals(judges: int) -> tuple[str, ...]:
    """The names of the signals that say how far each of so many judges agrees with what was decided."""
    return tuple(f"agreement_{number}" for number in range(1, judges + 1))
