"""The servers that a run starts itself, from the configuration to the hosts they run on."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.config.secrets import secrets_in
from adaptive_eval.endpoints.opening import open_endpoint
from adaptive_eval.errors import ConfigError
from adaptive_eval.launch.command import HOST, environment_of
from adaptive_eval.launch.host import Host
from adaptive_eval.launch.places import Places
from adaptive_eval.launch.ports import free_ports
from adaptive_eval.launch.server import Server, Spec
from adaptive_eval.launch.types import LaunchConfig
from adaptive_eval.run.programs import launch_words, missing_programs

LOGS = "logs"
"""The folder in a run's directory that servers print to."""


def open_hosts(config: RunConfig, environment: Mapping[str, str], logs: Path, places: Places) -> list[Host]:
    """A host for each launched model, or for those that share one; nothing is started. Raises `ConfigError`."""
    if problems := [f"{name}: {problem}" for name, problem in missing_programs(config, environment)]:
        raise ConfigError("\n".join(problems))
    ports = free_ports()
    groups: dict[str | int, dict[int, Server]] = {}
    for number, model in enumerate(config.models):
        if (launch := model.launch) is not None:
            spec = _spec(model, launch, config.folder, environment, next(ports), logs)
            place = number if launch.exclusive is None else launch.exclusive
            groups.setdefault(place, {})[number] = _server(model, spec, environment)
    return [Host(place if isinstance(place, str) else None, servers, places) for place, servers in groups.items()]


def _spec(
    model: ModelConfig, launch: LaunchConfig, folder: Path, environment: Mapping[str, str], port: int, logs: Path
) -> Spec:
    sees = environment_of(launch, model.model, str(port), environment)
    return Spec(
        model=model.name,
        command=launch_words(model, launch, str(port)),
        environment=sees,
        folder=folder,
        log=logs / f"{_file_name(model.name)}.log",
        root=f"http://{HOST}:{port}",
        health=launch.health,
        timeout=launch.timeout,
        secrets=secrets_in(sees, (model.api_key_env,)),
    )


def _server(model: ModelConfig, spec: Spec, keys: Mapping[str, str]) -> Server:
    if (problem := model.missing_key(keys)) is not None:
        raise ConfigError(problem)
    address = model.model_copy(update={"base_url": f"{spec.root}/v1"})
    return Server(spec, lambda: open_endpoint(address, model.sampling, model.concurrency, keys=keys, ready=True))


def _file_name(name: str) -> str:
    """A model's name as that of a file, and of no other model's."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80]
    return plain if plain == name else f"{plain}-{blake2b(name.encode(), digest_size=4).hexdigest()}"
