"""Sites without a cluster: each lives in the loop of the test, and speaks as a site of a cluster does."""

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from patient_time import until

from adaptive_eval import __version__
from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.sites.host import ReportMissing, SiteGroup
from adaptive_eval.sites.messages import SiteBegun, SiteData, SiteFacts, SiteGone, SiteOrder, SiteReport, SiteSetup
from adaptive_eval.sites.worker import SiteWorker

Message = TypeVar("Message")


class NearSite:
    """A site in this process; what travels is pickled on its way. It is lost after so many messages with answers."""

    def __init__(self, lost_after: int | None = None) -> None:
        self._worker = SiteWorker()
        self._left = lost_after
        self.gone = False
        self.orders: list[SiteOrder] = []
        self.sent_reports: list[SiteReport] = []

    async def begin(self, setup: SiteSetup, material: SiteData) -> SiteBegun:
        return _sent(await self._worker.begin(*_sent((setup, material))))

    async def sync(self, order: SiteOrder) -> SiteReport:
        self._require()
        self.orders.append(order)
        try:
            report = _sent(await self._worker.sync(_sent(order)))
        except SiteGone:
            self._require()  # nor does what it says while it ends
            raise
        if report.replies and self._left is not None:
            self._left -= 1
            if self._left < 0:  # what it has just told does not arrive
                self.gone = True
                await self._worker.end(at_once=True)
        self._require()
        self.sent_reports.append(report)
        return report

    async def end(self, at_once: bool) -> None:
        await self._worker.end(at_once)

    def kill(self) -> None:
        self.gone = True

    def _require(self) -> None:
        if self.gone:
            raise SiteGone("its node was taken away")


def _sent(message: Message) -> Message:
    copy: Message = pickle.loads(pickle.dumps(message))
    return copy


@dataclass
class NearCluster:
    """Gives each site a place as soon as there is room."""

    lives: list[int | None | str] = field(default_factory=list)
    """Of the sites in the order in which they are placed: after how many messages with answers each is lost; None:
    never; "nowhere": it has no place. Those that follow are never lost."""
    placed: list[tuple[str, NearSite]] = field(default_factory=list)
    room: int = 1000
    """So many sites may live at a time."""
    peak: int = 0
    """So many have lived at a time."""

    @property
    def _here(self) -> int:
        return sum(not site.gone for _, site in self.placed)

    async def place(self, name: str, group: SiteGroup, report_missing: ReportMissing) -> tuple[NearSite, SiteFacts]:
        life = self.lives.pop(0) if self.lives else None
        if life == "nowhere":
            report_missing("GPU 8", "the cluster has none")
            raise LaunchFailed("no place with GPU 8 was had")
        assert life is None or isinstance(life, int)
        await until(lambda: self._here < self.room)
        self.peak = max(self.peak, self._here + 1)
        site = NearSite(life)
        self.placed.append((name, site))
        return site, SiteFacts(f"node{len(self.placed)}", 1, __version__, "0,1", "ab12")

    def of(self, words: Iterable[str]) -> list[NearSite]:
        """The sites whose names have all of these words in them."""
        return [site for name, site in self.placed if all(word in name for word in words)]
