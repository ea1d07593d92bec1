"""Opens the sites of a run: which models have sites, and the settings, data and secrets of each site."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig, RunConfig, ServingGroup
from adaptive_eval.graders.by_benchmark import graders_that_ask
from adaptive_eval.launch.endpoint import AskServer, ServedPlace
from adaptive_eval.launch.types import LaunchConfig, spelled_flag
from adaptive_eval.sites.host import SiteGroup, SiteHost, SitePlacing, SitePlan, SiteService
from adaptive_eval.sites.messages import TIMEOUTS, SiteData, SiteSecrets, SiteSetup, SiteTimeouts
from adaptive_eval.supplies.opening import Models, OpenedHosts, SuppliedModel, SupplyContext, file_name

SPLIT_FLAGS = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
"""Flags of vLLM that split a model among GPUs; their product is the number of GPUs."""


def require_sites(config: RunConfig) -> None:
    """Raise `ConfigError` if the run has no models for sites, or uses places of this machine."""
    if not config.launched:
        raise ConfigError("--ray starts servers on the nodes of a cluster, but no model has a `launch` section")
    if config.pool is None:
        return
    if not isinstance(config.pool, int):
        raise ConfigError(
            "pool names places of this machine, but --ray uses those of a cluster: write the number of places that "
            "the run may use at a time, as in pool: 8"
        )
    for number, launch in config.launched.items():
        if launch.sites > 1:
            key = f"models.{config.models[number].name}.launch.sites"
            raise ConfigError(f"{key} asks for {launch.sites} servers, but pool says how many: remove it")


def site_resources(model: ModelConfig, launch: LaunchConfig) -> dict[str, float]:
    """Resources of one site: the configured ones, else a CPU and the GPUs that its server uses."""
    if launch.resources is not None:
        return dict(launch.resources)
    if model.gpus is not None:
        return {"CPU": 1.0, **({"GPU": model.gpus} if model.gpus else {})}
    if launch.command is not None:
        return {"CPU": 1.0}
    gpus = 1
    for flag, value in launch.flags.items():
        if spelled_flag(flag) in SPLIT_FLAGS and isinstance(value, int):
            gpus *= value
    return {"CPU": 1.0, "GPU": float(gpus)}


def format_resources(resources: Mapping[str, float]) -> str:
    """Format resources."""
    return ", ".join(f"{word} {amount:g}" for word, amount in resources.items()) or "nothing"


class RunSites:
    """Opens the sites of a run on a cluster."""

    def __init__(self, cluster: SitePlacing, timeouts: SiteTimeouts = TIMEOUTS) -> None:
        self._cluster, self._timeouts = cluster, timeouts

    def open(self, context: SupplyContext, models: Models) -> OpenedHosts:
        """Create a host for each site, which has no place yet, and a client for each model with sites."""
        services = SiteServices(context, models)
        return OpenedHosts(self._hosts(context, services), services.served)

    def _hosts(self, context: SupplyContext, services: "SiteServices") -> Sequence[SiteHost]:
        config, hosts = context.config, list[SiteHost]()
        for group in config.serving_groups:
            site_group = SiteGroup(self._timeouts.resources)
            for place in _group_places(config, group):
                name, resources = f"{config.name}/{place.name}", resources_of_group(config, group)
                plan = SitePlan(place.site, name, resources, services.at(group, place), self._timeouts.heartbeat)
                hosts.append(SiteHost(plan, self._cluster, site_group))
        return hosts


def _asking(model: SuppliedModel) -> AskServer:
    return lambda link, request, retry_gate: link.ask(request, model.seed(request.question, request.first), retry_gate)


class _Place(NamedTuple):
    """A place where the models of a group may be served."""

    site: str
    name: str


def _group_places(config: RunConfig, group: ServingGroup) -> list[_Place]:
    """Places where the models of a group may be served."""
    model = config.models[group.models[0]]
    assert model.launch is not None
    if not group.places:
        return [_Place(f"site {at}", f"{file_name(model.name)}/{at}") for at in range(1, model.launch.sites + 1)]
    return [_Place(word, f"pool:{file_name(word)}") for word in group.places]


def resources_of_group(config: RunConfig, group: ServingGroup) -> dict[str, float]:
    """Resources of each place of a group: for each resource the maximum over its models."""
    maxima: dict[str, float] = {}
    for number in group.models:
        for resource, amount in site_resources(config.models[number], config.launched[number]).items():
            maxima[resource] = max(amount, maxima.get(resource, 0.0))
    return maxima


class SiteServices:
    """Setups of each model's sites, and the servers of each model."""

    def __init__(self, context: SupplyContext, models: Models) -> None:
        self.served = {number: context.served(model, _asking(model)) for number, model in models.items()}
        self._config, self._logs = context.config, context.logs.resolve()
        self._numbers = {model.name: number for number, model in models.items()}
        self._inputs: dict[int, tuple[SiteSecrets, SiteData]] = {}
        keys, prepared = read_environment(self._config.folder), context.prepared
        assert prepared is not None, "sites serve runs"
        materials: dict[int, SiteData] = {}
        for index in self._config.launched:
            model, prompts = self._config.models[index], prepared.prompts[index]
            if id(prompts) not in materials:
                materials[id(prompts)] = _site_data(prepared, index)
            site_secrets = SiteSecrets(model, _model_keys(model, keys), self._config.keys)
            self._inputs[index] = site_secrets, materials[id(prompts)]

    def at(self, group: ServingGroup, place: _Place) -> dict[int, SiteService]:
        """Models that a site at this place may serve."""
        config, services = self._config, {}
        for index in group.models:
            site_secrets, site_data = self._inputs[index]
            setup = SiteSetup(
                run=config.name,
                site=place.site,
                pool=config.pool,
                folder=config.folder.resolve(),
                logs=self._logs,
            )
            number, place_served = self._numbers[site_secrets.model.name], ServedPlace()
            self.served[number].add(place_served)
            services[number] = SiteService(setup, site_secrets, site_data, self.served[number], place_served)
        return services


def _site_data(prepared: PreparedRun, number: int) -> SiteData:
    """Prompts, questions and grading that a model's sites need."""
    grader, limits = prepared.config.grader, prepared.config.grading
    site_grader = None if graders_that_ask(grader) else grader
    return SiteData(prepared.prompts[number], prepared.questions, site_grader, prepared.rubric, limits)


def _model_keys(model: ModelConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Key of the model's server, if it has one; no other key is sent to a site."""
    if (problem := model.missing_key(environment)) is not None:
        raise ConfigError(problem)
    variable = model.key_variable
    return {variable: environment[variable]} if variable is not None and variable in environment else {}
