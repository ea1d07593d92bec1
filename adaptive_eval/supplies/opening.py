"""Opens the supplies of a run: a module for each key of a model that needs more than an address.

To add one, write its `open_supply`, and name the module in `SUPPLIES`: it is imported if a model has the key.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.batching import MAX_REQUESTS
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.types import Answer, EarlierTimes, Endpoint, Notice, Prompt
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import ByBenchmark, graders_that_ask
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.launch.endpoint import AskServer, ServedEndpoint
from adaptive_eval.launch.hosts import ServerHost
from adaptive_eval.machine.supply import AskedModel, EndpointClient, EndpointSupply, ModelClient, Post, Supply
from adaptive_eval.notes import Event

SUPPLIES = {
    "inspect": "adaptive_eval.supplies.inspected",
    "command": "adaptive_eval.supplies.commands.supply",
    "launch": "adaptive_eval.supplies.launched",
    "batch": "adaptive_eval.supplies.batches.supply",
}
"""Module of each key, of which a model has at most one; other models are asked at servers of others."""


@dataclass(frozen=True, slots=True)
class SuppliedModel:
    """A model that is asked in a run."""

    config: ModelConfig
    prompt: Callable[[int], Prompt]
    """The prompt of a question."""
    seed: Callable[[int, int], int]
    """The seed of a question's trial."""
    cost: Callable[[Answer], Cost]
    reserve: Callable[[Answer, int], Cost] = field(default=lambda answer, question: NO_COST)
    """The most that the grade of an answer to a question may cost."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.config.name

    def asked(self, client: ModelClient, slots: int) -> AskedModel:
        """The model as one that this client asks, with so many requests in flight."""
        return AskedModel(client, slots, self.cost, self.reserve)

    def client(self, endpoint: Endpoint) -> EndpointClient:
        """The model at an endpoint."""
        return EndpointClient(endpoint, self.prompt, self.seed)


Models = Mapping[int, SuppliedModel]
"""Models by their numbers in the store."""


class RequestLimits(NamedTuple):
    """The limits of a supply that `machine.events.Setting` needs."""

    slots: int
    """Requests in flight at the beginning; 0: until a server is up."""
    samples: int
    """Most answers per request."""
    remembers: bool = False
    """Whether requests outlive a process."""
    own_grades: bool = False
    """Whether an answer comes with its grade, and is lost without."""
    rehearsed: int = 2
    """Answers that a dry run asks for in each benchmark: one may be an exception."""


def request_limits(model: ModelConfig) -> RequestLimits:
    """The limits of requests to a model, by the key that says where it is served."""
    limits = model.concurrency
    if model.batch is not None:
        return RequestLimits(MAX_REQUESTS[model.batch], 1, remembers=True)
    if model.launch is not None:
        return RequestLimits(0, limits.samples_per_request)
    if model.command is not None:
        return RequestLimits(model.concurrency.in_flight, 1, own_grades=True, rehearsed=1)
    has_grades = model.inspect is not None
    return RequestLimits(limits.in_flight * len(model.replicas), limits.samples_per_request, own_grades=has_grades)


class RunServers:
    """The places of all servers that a run starts, from the beginning to the end."""

    def __init__(self) -> None:
        self.hosts: list[ServerHost] = []
        self._is_ending = False
        self.is_hurried = False
        """Whether servers get no time to end."""

    @property
    def up(self) -> int:
        """How many places serve a model, or are held for one."""
        return sum(host.up for host in self.hosts)

    def hurry(self) -> None:
        """Give servers no more time to end."""
        self.is_hurried = True
        if self._is_ending:
            for host in self.hosts:
                host.kill()

    async def end(self) -> None:
        """Stop all servers."""
        self._is_ending = True
        await asyncio.gather(*(host.unload(at_once=self.is_hurried) for host in self.hosts))


@dataclass(frozen=True, slots=True)
class OpenedHosts:
    """Hosts, and the client of each model that they serve, by its number; nothing is started yet."""

    hosts: Sequence[ServerHost]
    clients: Mapping[int, ServedEndpoint]


@dataclass(frozen=True)
class SupplyContext:
    """Values that a supply may need to open its models."""

    prepared: PreparedRun | None
    """None: servers are only checked."""
    config: RunConfig
    """That of the run, with the address of a simulated server."""
    directory: Path
    """That of the run."""
    redactor: Redactor = field(repr=False)
    """Removes the secrets of the run."""
    notices: Sequence[Notice]
    """Notices for every server."""
    stack: AsyncExitStack
    """Closes what was opened, the latest first."""
    post: Post
    on_error: Callable[[BaseException], None]
    """Called with an error that nobody has foreseen."""
    is_capped: bool = False
    """Whether a cap counts what lost answers have cost."""
    events: Sequence[Event] = ()
    """Events of earlier starts."""
    answered: Mapping[str, EarlierTimes] = field(default_factory=dict)
    """Models that have answered at an earlier start, and how long that took."""
    patient: bool = True
    """Whether retries may take as long as they do, and other runs may have places first."""
    servers: RunServers = field(default_factory=RunServers)
    remote: "OpenRemote | None" = None
    """Opens servers on other machines, if not on this one."""
    shared_time: SharedTime = field(default_factory=SharedTime)

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """The environment, completed by .env."""
        return read_environment(self.config.folder)

    @property
    def logs(self) -> Path:
        """The folder for the logs of servers."""
        return self.directory / "logs"

    def open_endpoint(self, model: ModelConfig) -> Endpoint:
        """Open the endpoint of a model at a server of others."""
        return open_endpoint(
            model,
            model.sampling,
            self.config.concurrency.with_limits(model.concurrency),
            keys=self.keys,
            shared_time=self.shared_time,
            folder=self.config.folder,
            notices=self.notices,
            earlier=self.answered.get(model.name),
            independent=model.sampled is not None,
        )

    def served(self, model: SuppliedModel, ask_server: AskServer) -> ServedEndpoint:
        """The client of a model whose servers come and go."""
        client = ServedEndpoint(ask_server, answered_before=model.name in self.answered)
        self.stack.push_async_callback(client.close)
        return client

    def supply(self, asked: Mapping[int, AskedModel]) -> Mapping[int, Supply]:
        """One supply of these models, which are asked request by request."""
        return dict.fromkeys(asked, EndpointSupply(asked, self.post, self.on_error, is_capped=self.is_capped))


OpenSupply = Callable[[SupplyContext, Models], Mapping[int, Supply]]
"""Opens the supply of each of these models; nothing is asked or started yet. Raises `ConfigError`."""
OpenRemote = Callable[[SupplyContext, Models], OpenedHosts]
"""Opens hosts of these models on other machines; nothing is started yet."""


def open_supplies(context: SupplyContext, models: Models) -> dict[int, Supply]:
    """The supply of each model; needs a running event loop."""
    by_key: defaultdict[str, dict[int, SuppliedModel]] = defaultdict(dict)
    for number, model in models.items():
        key = next((key for key in SUPPLIES if getattr(model.config, key)), "")
        by_key[key][number] = model
    opened: dict[int, Supply] = {}
    for key, group in by_key.items():
        open_supply: OpenSupply = import_module(SUPPLIES[key]).open_supply if key else open_direct
        opened |= open_supply(context, group)
    context.stack.push_async_callback(context.servers.end)
    return opened


MAX_NAME_CHARS = 80


def file_name(name: str) -> str:
    """A name as that of a file, and of no other name's."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:MAX_NAME_CHARS].lstrip(".-")
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return plain if plain == name else f"{plain}-{digest}"


Limited = TypeVar("Limited", ModelConfig, AskedGrader)
FILES_OF_COMMAND = 8
"""Open files that a command in flight needs: its question, and both ends of its pipes."""


def within_open_files(config: RunConfig, *, grades: bool = True) -> tuple[RunConfig, list[Notice]]:
    """Raise the limit of open files; if that is not enough, models and judges have fewer requests in flight, with a
    notice. `grades`: whether this process asks the judges."""
    servers = [model.concurrency.in_flight for model in config.asked if model.command is None for _ in model.replicas]
    commands = sum(model.concurrency.in_flight for model in config.asked if model.command is not None)
    graders = graders_that_ask(config.grader).values() if grades else ()
    judges = [grader.concurrency.in_flight * len(host.replicas) for grader in graders for host in grader.server]
    requests = sum(servers) + commands * FILES_OF_COMMAND + sum(judges)
    others = open_files.files_needed(0, len(servers))
    allowed = open_files.allow(requests + others)
    if allowed >= requests + others:
        return config, []
    share = max(allowed - others, 0) / max(requests, 1)
    fewer: dict[str, object] = {"models": tuple(_with_share(model, share) for model in config.models)}
    if grades:
        fewer["grader"] = _grader_with_share(config.grader, share)
    notice = Notice("few_open_files", open_files.too_few_message(requests + others, allowed))
    return config.model_copy(update=fewer), [notice]


def _with_share(limited: Limited, share: float) -> Limited:
    """A model or a grader with this share of its requests in flight, at least one."""
    limits = limited.concurrency
    limits = limits.model_copy(update={"in_flight": max(int(share * limits.in_flight), 1)})
    return limited.model_copy(update={"concurrency": limits})


def _grader_with_share(grader: GraderOptions, share: float) -> GraderOptions:
    if isinstance(grader, ByBenchmark):
        graders = {name: _grader_with_share(inner, share) for name, inner in grader.graders.items()}
        return grader.model_copy(update={"graders": graders})
    return _with_share(grader, share) if isinstance(grader, AskedGrader) else grader


def open_direct(context: SupplyContext, models: Models) -> Mapping[int, Supply]:
    """The supply of models at external servers."""
    asked = {}
    for number, model in models.items():
        endpoint = context.open_endpoint(model.config)
        context.stack.push_async_callback(endpoint.close)
        asked[number] = model.asked(model.client(endpoint), request_limits(model.config).slots)
    return context.supply(asked)
