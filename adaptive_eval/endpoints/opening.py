"""Opening the endpoint of a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import SecretStr

from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.client import NOT_SENDABLE, Caller, HttpCaller, is_sendable
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.load import LoadWatch
from adaptive_eval.endpoints.types import Endpoint, EndpointConfig, Limits, Notice, Sampling
from adaptive_eval.errors import ConfigError


def open_endpoint(
    config: EndpointConfig,
    sampling: Sampling,
    limits: Limits,
    *,
    keys: Mapping[str, str],
    loads: LoadWatch | None = None,
    ready: bool = False,
    folder: Path = Path(),
    notices: Sequence[Notice] = (),
    has_answered: bool = False,
) -> Endpoint:
    """Open the endpoint of one model; needs a running event loop.

    `keys` is the environment; `folder` is where files and plug-ins named in `config` are looked up. Endpoints on the
    same servers share their `loads`. Servers known to be `ready` get patience from the first request on. `notices` are
    reported from the start. `has_answered`: the model did so at an earlier start of the run.
    """
    if (problem := config.missing_key(keys)) is not None:
        raise ConfigError(problem)
    # a key read from a file often ends in a line break
    key = keys.get(config.key_variable or "", "").strip()
    if not is_sendable(key):
        raise ConfigError(f"{config.key_variable} must hold a key, but what it holds has {NOT_SENDABLE}")
    open_files.allow(open_files.wanted_for(limits.in_flight * len(config.replicas), len(config.replicas)))
    caller = _caller(config, sampling, SecretStr(key) if key else None, folder)
    return ModelEndpoint(
        config, sampling, limits, caller, loads=loads, ready=ready, notices=notices, has_answered=has_answered
    )


def _caller(config: EndpointConfig, sampling: Sampling, key: SecretStr | None, folder: Path) -> Caller:
    if config.client == "openai":
        # only on demand: the SDK takes half a second to load
        from adaptive_eval.endpoints.sdk import SdkCaller

        return SdkCaller(config, sampling, key, folder)
    return HttpCaller(config, sampling, key, folder)
