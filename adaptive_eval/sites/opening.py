"""Opens the sites of a run: which models have sites, and the settings, data and secrets of each site."""

from collections.abc import Mapping
from dataclasses import replace

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig, RunConfig, ServingGroup
from adaptive_eval.graders.by_benchmark import graders_that_ask
from adaptive_eval.launch.endpoint import AskServer, ServedPlace
from adaptive_eval.launch.types import LaunchConfig, spelled_flag
from adaptive_eval.sites.host import SiteGroup, SiteHost, SitePlacing, SiteService
from adaptive_eval.sites.messages import SiteData, SiteSetup, SiteTimeouts
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


def open_sites(cluster: SitePlacing, timeouts: SiteTimeouts, context: SupplyContext, models: Models) -> OpenedHosts:
    """Create a host for each site on a cluster, which has no place yet, and a client for each model with sites."""
    config, hosts = context.config, list[SiteHost]()
    clients = {number: context.served(model, _asking(model)) for number, model in models.items()}
    numbers, inputs = {model.name: number for number, model in models.items()}, _site_inputs(context)
    for group in config.serving_groups:
        site_group = SiteGroup(cluster, resources_of_group(config, group), timeouts)
        for site, name in _group_places(config, group):
            services = {}
            for index in group.models:
                (setup, site_data), place = inputs[index], ServedPlace()
                number = numbers[setup.model.name]
                clients[number].add(place)
                services[number] = SiteService(replace(setup, site=site), site_data, clients[number], place)
            hosts.append(SiteHost(site, f"{config.name}/{name}", services, site_group))
    return OpenedHosts(hosts, clients)


def _asking(model: SuppliedModel) -> AskServer:
    return lambda link, request, retry_gate: link.ask(request, model.seed(request.question, request.first), retry_gate)


def _group_places(config: RunConfig, group: ServingGroup) -> list[tuple[str, str]]:
    """Places where the models of a group may be served: the name of each in the run, and in the cluster."""
    model = config.models[group.models[0]]
    assert model.launch is not None
    if not group.places:
        return [(f"site {at}", f"{file_name(model.name)}/{at}") for at in range(1, model.launch.sites + 1)]
    return [(word, f"pool:{file_name(word)}") for word in group.places]


def resources_of_group(config: RunConfig, group: ServingGroup) -> dict[str, float]:
    """Resources of each place of a group: for each resource the maximum over its models."""
    maxima: dict[str, float] = {}
    for number in group.models:
        for resource, amount in site_resources(config.models[number], config.launched[number]).items():
            maxima[resource] = max(amount, maxima.get(resource, 0.0))
    return maxima


def _site_inputs(context: SupplyContext) -> dict[int, tuple[SiteSetup, SiteData]]:
    """What the sites of each launched model need, except their names."""
    config, prepared, inputs = context.config, context.prepared, {}
    assert prepared is not None, "sites serve runs"
    shared: dict[int, SiteData] = {}
    for index in config.launched:
        model, prompts = config.models[index], prepared.prompts[index]
        if id(prompts) not in shared:
            shared[id(prompts)] = _site_data(prepared, index)
        setup = SiteSetup(
            model=model,
            keys=_model_keys(model, context.keys),
            hidden=config.keys,
            run=config.name,
            site="",
            pool=config.pool,
            folder=config.folder.resolve(),
            logs=context.logs.resolve(),
        )
        inputs[index] = setup, shared[id(prompts)]
    return inputs


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
