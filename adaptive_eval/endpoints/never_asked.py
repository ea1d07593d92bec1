"""A stand-in for the servers of a recorded model, which may be gone and are never asked."""

from adaptive_eval.endpoints.types import Again, Answer, EndpointStats, Health, Prompt


class NeverAsked:
    """An endpoint without a server."""

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """Raise `AssertionError`: a recorded model is never asked."""
        raise AssertionError("a recorded model was asked")

    async def check(self) -> Health:
        """Report that nothing is needed."""
        return Health(())

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    @property
    def stats(self) -> EndpointStats:
        """No traffic."""
        return EndpointStats()
