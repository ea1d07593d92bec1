"""What the parts of one model's endpoint share."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from adaptive_eval.endpoints import settings as defaults
from adaptive_eval.endpoints.answers import AnswerReader
from adaptive_eval.endpoints.client import Caller
from adaptive_eval.endpoints.servers import IdentifiedServers
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.traffic import Traffic
from adaptive_eval.endpoints.types import EarlierTimes, EndpointConfig, Limits, Sampling
from adaptive_eval.endpoints.wire import BodyBuilder


@dataclass
class EndpointContext:
    """What the parts of one model's endpoint share; needs a running event loop."""

    config: EndpointConfig
    sampling: Sampling
    limits: Limits
    caller: Caller
    shared_time: SharedTime = field(default_factory=SharedTime)
    earlier: EarlierTimes | None = None
    """How long answers took at earlier starts of the run, or elsewhere; None if the model has not answered."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    settings: EndpointSettings = field(default_factory=lambda: defaults.DEFAULT)
    independent: bool = False
    """Whether no answer may be a copy of another one, as of a cache."""

    def __post_init__(self) -> None:
        self.clock = asyncio.get_running_loop().time
        self.traffic = Traffic(has_answered=self.earlier is not None)
        self.bodies = BodyBuilder(self.config, self.sampling)
        self.servers = IdentifiedServers(self.caller, self.config, self.sampling, self.bodies.tiny(), self.settings)
        redactor, unauthorized = self.caller.redactor, self.caller.unauthorized
        self.reader = AnswerReader(self.config, self.sampling, redactor, self.servers.note, unauthorized)

    @property
    def max_refusal_wait(self) -> float:
        """Seconds for which one request waits out rate limits."""
        return max(self.sampling.timeout, self.limits.retry_for)
