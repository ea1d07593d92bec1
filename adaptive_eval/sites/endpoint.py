"""A model over all its sites: a request goes to the site that is there and has the fewest.

What was asked of a site that is lost is asked again with the same seeds, elsewhere or there when it is back; that it
may have been generated is counted first.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from adaptive_eval.endpoints.types import (
    Again,
    Answer,
    EndpointStats,
    Health,
    Prompt,
    ReplicaHealth,
    SiteStats,
    summed_stats,
)
from adaptive_eval.errors import LaunchFailed, NotAskedAgain
from adaptive_eval.seeds import SEED_SPAN
from adaptive_eval.sites.link import SiteLink
from adaptive_eval.sites.messages import SiteGone


class SitesEndpoint:
    """An `Endpoint` over sites that come and go."""

    def __init__(self, model: str, prompts: Sequence[Prompt], seed_base: Callable[[int], int]) -> None:
        self._model, self._seed_base = model, seed_base
        self._prompts = prompts  # kept, since they are known by their identity: two questions may be put alike
        self._questions = {id(prompt): number for number, prompt in enumerate(prompts)}
        self._links: dict[str, SiteLink] = {}
        self._gone: dict[str, str] = {}
        """Sites that will not come back, and why."""
        self._changed = asyncio.Event()
        self._before: list[EndpointStats] = []
        self._answers: Counter[str] = Counter()
        """That came from each site before it was lost or ended."""
        self._lost = 0
        self._expected = False
        """The model was lost with a site, and is to be served again."""
        self._waiting = 0
        """Requests that no site has."""

    def joined(self, site: str, link: SiteLink) -> None:
        """A site serves the model."""
        self._gone.pop(site, None)
        self._links[site] = link
        self._expected = False
        self._tell()

    def left(self, site: str) -> None:
        """Take out a site that does not serve the model for now."""
        if (link := self._links.pop(site, None)) is not None:
            self._before.append(replace(link.stats, oldest=0.0))
            self._answers[site] += link.answers
            self._tell()

    def lost(self, site: str) -> None:
        """A site is gone: what it had waits until the model is served again, there or on another site."""
        self._expected = True
        self.left(site)

    def given_up(self, site: str, reason: str) -> None:
        """A site will not come back by itself."""
        self.left(site)
        self._gone[site] = reason
        self._tell()

    def abandoned(self, site: str, reason: str) -> None:
        """Record that the model is brought up no more, there or elsewhere."""
        self._expected = False
        self.given_up(site, reason)

    # -- the protocol ------------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order, from one of the sites."""
        question = self._questions[id(prompt)]
        trial = (seeds.start - self._seed_base(question)) % SEED_SPAN
        while True:
            site, link = await self._least_busy()
            try:
                return await link.sample(question, trial, seeds, again)
            except SiteGone:
                self._lost += len(seeds)
            except LaunchFailed as error:  # the server there was started again as often as it may be
                if self._links.get(site) is link:
                    self.given_up(site, str(error))
                if not self._links:
                    self.abandoned(site, str(error))
                    raise
            if again is not None and not await again():
                raise NotAskedAgain("its site was lost, and the budget does not allow asking for the answer again")

    async def check(self) -> Health:
        """Health of the sites that serve the model, and of those that are gone."""
        up = [ReplicaHealth(site, True, "it serves the model", (self._model,)) for site in self._links]
        return Health((*up, *(ReplicaHealth(site, False, reason) for site, reason in self._gone.items())))

    async def close(self) -> None:
        """Speak to no site any more."""
        for site, link in list(self._links.items()):
            await link.close()
            self.left(site)

    @property
    def stats(self) -> EndpointStats:
        """The traffic of all sites, those that are gone included."""
        here = [link.stats for link in self._links.values()]
        together = summed_stats([*self._before, *here])
        return replace(
            together,
            in_flight=sum(link.in_flight for link in self._links.values()),
            lost=self._lost + together.lost,
            replicas=tuple(replica for one in here for replica in one.replicas),
            sites=tuple(self._site_stats()),
            waiting=self._waiting,
        )

    # ----------------------------------------------------------------------------------------------------------------

    def _site_stats(self) -> Iterator[SiteStats]:
        for site in dict.fromkeys((*self._answers, *self._links)):
            link = self._links.get(site)
            answers = self._answers[site] + (0 if link is None else link.answers)
            yield SiteStats(
                site=site,
                in_flight=0 if link is None else link.in_flight,
                queued=0 if link is None else max(0, link.in_flight - link.asked),
                answers=answers,
            )

    async def _least_busy(self) -> tuple[str, SiteLink]:
        """The site that has the fewest requests, as soon as there is one; raises `LaunchFailed` where none will be."""
        self._waiting += 1
        try:
            while not self._links:
                if self._gone and not self._expected:
                    raise LaunchFailed(next(reversed(self._gone.values())))
                await self._changed.wait()
        finally:
            self._waiting -= 1
        return min(self._links.items(), key=lambda one: one[1].in_flight)

    def _tell(self) -> None:
        """Wake everyone who waits for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
