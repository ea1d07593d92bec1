"""The sites of a run: which models have them, what each is told, and what it may know."""

import pickle
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from pydantic import SecretStr

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.prepare import PreparedRun, make_lane
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.never_asked import NeverAsked
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.launch.types import LaunchConfig, spelled_flag
from adaptive_eval.running.serving import LOGS, HostsElsewhere, file_name
from adaptive_eval.sites.endpoint import SitesEndpoint
from adaptive_eval.sites.host import SiteHost, SitePlacing, SitePlan
from adaptive_eval.sites.link import SitePace
from adaptive_eval.sites.messages import SiteConfidence, SiteMaterial, SiteSetup
from adaptive_eval.store import Store

SPLITS = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
"""Flags of vLLM that say among how many GPUs a model is split, in one way after the other."""


def require_sites(config: RunConfig) -> None:
    """Raise `ConfigError` where the run has nothing that sites could serve, or places of this machine."""
    if not any(model.launch for model in config.models):
        raise ConfigError("--ray starts servers on the nodes of a cluster, but no model has a `launch` section")
    if config.pool is not None:
        raise ConfigError("pool names places of this machine, and --ray those of a cluster: remove one of the two")
    for model in config.models:
        if model.launch is not None and model.launch.exclusive is not None:
            raise ConfigError(
                f"models.{model.name}.launch.exclusive names a place of this machine, and with --ray the cluster has "
                "the places: remove it, and say what a server takes in launch.resources"
            )


def resources_of(model: ModelConfig, launch: LaunchConfig) -> dict[str, float]:
    """What one site takes: what is said, else a CPU, and the GPUs that its server uses."""
    if launch.resources is not None:
        return dict(launch.resources)
    if model.gpus is not None:
        return {"CPU": 1.0, "GPU": model.gpus}
    if launch.command is not None:
        return {"CPU": 1.0}
    gpus = 1
    for flag, value in launch.flags.items():
        if spelled_flag(flag) in SPLITS and isinstance(value, int):
            gpus *= value
    return {"CPU": 1.0, "GPU": float(gpus)}


class RunSites:
    """Opens the sites of a run on a cluster."""

    def __init__(self, cluster: SitePlacing) -> None:
        self._cluster = cluster

    def open(self, prepared: PreparedRun, store: Store) -> HostsElsewhere:
        """A host for each site, nothing of which is placed yet, and an endpoint for each model that has sites."""
        config, head = prepared.config, secrets.token_hex(8)
        run = blake2b(f"{store.directory.resolve()}\0{store.reader.created}".encode(), digest_size=6).hexdigest()
        keys = read_environment(config.folder)
        hosts: list[SiteHost] = []
        endpoints: dict[int, SitesEndpoint] = {}
        materials: dict[int, SiteMaterial] = {}
        for number, model in enumerate(config.models):
            if model.launch is None:
                continue
            prompts, seed_base = prepared.prompts[number], make_lane(prepared, number, NeverAsked()).seed_base
            endpoint = endpoints[number] = SitesEndpoint(model.name, prompts, seed_base)
            material = materials.setdefault(id(prompts), _material(prepared, number))
            confided = SiteConfidence(model, _keys_of(model, keys), config.keys)
            mark = _mark(confided, material, config)
            setup = SiteSetup(
                run=config.name,
                head=head,
                mark=mark,
                folder=config.folder.resolve(),
                logs=store.directory.resolve() / LOGS,
                batch=config.sites.batch,
                moment=config.sites.moment,
            )
            for at in range(1, model.launch.sites + 1):
                plan = SitePlan(
                    number=number,
                    site=f"site {at}",
                    name=f"{config.name}-{run}/{file_name(model.name)}/{at}",
                    resources=resources_of(model, model.launch),
                    setup=setup,
                    confided=confided,
                    material=material,
                    pace=SitePace(config.sites.batch, config.sites.moment, config.sites.silence),
                    wait=config.sites.wait,
                )
                hosts.append(SiteHost(plan, self._cluster, endpoint))
        return HostsElsewhere(hosts, endpoints)


def _material(prepared: PreparedRun, number: int) -> SiteMaterial:
    grader = prepared.config.grader
    graded_there = None if isinstance(grader, AskedGrader) else grader
    return SiteMaterial(prepared.prompts[number], prepared.questions, graded_there, prepared.rubric)


def _keys_of(model: ModelConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """The key that the model's server is asked with, where it has one: nothing else leaves the head."""
    if (problem := model.missing_key(environment)) is not None:
        raise ConfigError(problem)
    variable = model.key_variable
    return {variable: environment[variable]} if variable is not None and variable in environment else {}


def _mark(confided: SiteConfidence, material: SiteMaterial, config: RunConfig) -> str:
    """Of everything that a site serves and how; another one for whatever differs."""
    model = confided.model
    hidden = [*model.headers.items(), *model.sampling.extra_headers.items()]
    grader = None if material.grader is None else material.grader.model_dump_json()
    told = (
        model.model_dump_json(),
        sorted((name, value.get_secret_value()) for name, value in hidden if isinstance(value, SecretStr)),
        sorted(confided.keys.items()),
        grader,
        repr(material.prompts),
        repr(material.questions),
        str(Path(config.folder).resolve()),
    )
    return blake2b(pickle.dumps(told), digest_size=16).hexdigest()
