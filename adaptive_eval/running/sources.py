"""What opens the models of a run that need more than an address: a module for each key of a model.

To add one, write its `open_source`, and name the module in `SOURCES`: it is imported where a model has the key.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.types import Endpoint, Notice
from adaptive_eval.supply.hosts import ServerHost
from adaptive_eval.supply.launch.endpoint import ServedEndpoint
from adaptive_eval.supply.supplies import OpenSupply

SOURCES = {
    "inspect": "adaptive_eval.running.inspected",
    "launch": "adaptive_eval.running.launched",
    "batch": "adaptive_eval.batches.supply",
}
"""Module of each key, of which a model has at most one; the others are asked at servers of others."""

Models = Mapping[int, ModelConfig]
"""Models by their index in the configuration."""


@dataclass(frozen=True, slots=True)
class OpenedHosts:
    """Hosts, and the endpoint of each model that they serve, by model index; nothing is started yet."""

    hosts: Sequence[ServerHost]
    endpoints: Mapping[int, ServedEndpoint]


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Values that a source may need to open its models."""

    config: RunConfig
    keys: Mapping[str, str]
    """The environment, completed by .env."""
    redactor: Redactor
    """Removes the secrets of the run."""
    logs: Path
    """The folder for the logs of servers."""
    notices: Sequence[Notice]
    """Notices for every server."""
    elsewhere: OpenedHosts | None
    """Servers on other machines, if not on this one."""
    opener: Callable[..., Endpoint]
    """Opens an endpoint at a server of others."""
    stack: AsyncExitStack
    """Closes what endpoints share after all of them, and after servers."""
    patient: bool
    """Retries may take as long as they do, and other runs may have places first."""
    answered: Collection[str]
    """Models that have answered at an earlier start."""

    def open(self, model: ModelConfig) -> Endpoint:
        """The endpoint of a model at a server of others."""
        return self.opener(model, model.sampling, model.concurrency, has_answered=model.name in self.answered)


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """The models of a source."""

    endpoints: Iterable[tuple[int, Endpoint]]
    """Opened as they are taken, each with the index of its model; who takes one closes it."""
    open_supply: OpenSupply | None = None
    """None if the models can always be asked, and a start leaves nothing to the next."""
    hosts: Sequence[ServerHost] = ()
    """Where servers are started; each must be loaded before its endpoint answers."""


def open_sources(context: SourceContext) -> Iterable[OpenedSource]:
    """Open the sources of the models that have a key, one after the other."""
    for key, module in SOURCES.items():
        models = {number: model for number, model in enumerate(context.config.models) if getattr(model, key)}
        if models:
            opened: OpenedSource = import_module(module).open_source(context, models)
            yield opened
