"""The secrets of a run: those sent to its servers, and those readable by the programs that it starts."""

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.redaction import Redactor, environment_secrets, secrets_of_known_form, sent_secrets


def run_redactor(config: RunConfig) -> Redactor:
    """The redactor of a run.

    It knows the keys and headers of its models, judges, verifiers and batch services, credentials in addresses such as
    those of proxies, and the whole environment if a third-party program can read it.
    """
    environment = read_environment(config.folder)
    redactor = Redactor(sent_secrets(config.servers, environment))
    redactor.add(secrets_of_known_form(environment))
    if _shares_environment(config):
        redactor.add(environment_secrets(environment))
    return redactor


def _shares_environment(config: RunConfig) -> bool:
    """Whether Inspect, a server or command that the run starts, or a user's signer can read keys."""
    signed = any(server.auth is not None for server in config.servers)
    started = config.launched or any(model.command is not None for model in config.asked)
    return bool(config.inspect_tasks or started) or signed
