"""The endpoint of a model that may be served at several places of a pool at the same time.

At each place it has a server of its own, which comes and goes (`LaunchedEndpoint`). A request goes to the server that
is up and has the fewest; where a server is given up while another one goes on, its requests go there.
"""

from collections.abc import Sequence

from adaptive_eval.endpoints.types import Again, Answer, EndpointStats, Health, Prompt, summed_stats
from adaptive_eval.errors import LaunchFailed
from adaptive_eval.launch.endpoint import LaunchedEndpoint


class PooledEndpoint:
    """An `Endpoint` over the model's servers at all places."""

    def __init__(self, places: Sequence[LaunchedEndpoint]) -> None:
        self._places = places
        self._in_flight = [0] * len(places)

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order, from one of the places."""
        while True:
            place = self._least_busy()
            self._in_flight[place] += 1
            try:
                return await self._places[place].sample(prompt, seeds, again)
            except LaunchFailed:
                if not any(one.expected for one in self._places):
                    raise
            finally:
                self._in_flight[place] -= 1

    async def check(self) -> Health:
        return await self._places[self._least_busy()].check()

    async def close(self) -> None:
        for place in self._places:
            await place.close()

    @property
    def stats(self) -> EndpointStats:
        """The traffic at all places."""
        return summed_stats([place.stats for place in self._places])

    def _least_busy(self) -> int:
        """The place that is up, else expected to be, with the fewest requests."""
        return min(
            range(len(self._places)),
            key=lambda at: (not self._places[at].up, not self._places[at].expected, self._in_flight[at], at),
        )
