"""What is started for a model: a pure function of its `launch` section, the name it is served under, and the port."""

import json
import re
from collections.abc import Iterator, Mapping

from adaptive_eval.launch.types import FlagValue, LaunchConfig, Scalar, spelled

HOST = "127.0.0.1"
VLLM_FLAGS: Mapping[str, FlagValue] = {"generation-config": "vllm"}
"""vLLM would else take what the run leaves unsaid, such as top_k, from a file of the model, which no result shows."""
PLACEHOLDER = re.compile(r"\{(port|host|model)\}")


def command_of(launch: LaunchConfig, served: str, port: str) -> tuple[str, ...]:
    """The words of the command."""
    words = launch.words
    if words is not None:
        return tuple(_filled(word, served, port) for word in words)
    flags: dict[str, FlagValue] = {"served-model-name": served, "host": HOST, "port": port, **VLLM_FLAGS}
    flags |= {spelled(name): value for name, value in launch.flags.items()}
    return ("vllm", "serve", launch.model or served, *(word for flag in flags.items() for word in _flag(*flag)))


def environment_of(launch: LaunchConfig, served: str, port: str, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variables that the server sees."""
    return {**environment, **{name: _filled(str(value), served, port) for name, value in launch.env.items()}}


def _filled(text: str, served: str, port: str) -> str:
    values = {"port": port, "host": HOST, "model": served}
    return PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _flag(name: str, value: FlagValue) -> Iterator[str]:
    """The words of one flag: `--name`, `--no-name`, `--name value ...`, or nothing."""
    if value is None:
        return
    if isinstance(value, bool):
        yield f"--{name}" if value else f"--no-{name}"
        return
    yield f"--{name}"
    if isinstance(value, tuple):
        yield from map(_word, value)
    else:
        yield json.dumps(value) if isinstance(value, Mapping) else _word(value)


def _word(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
