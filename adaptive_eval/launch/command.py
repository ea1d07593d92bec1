"""The command of a model's server: a pure function of its `launch` section, its served name, and the port.

Checks for its program and for free ports on this machine are here too.
"""

import errno
import json
import os
import random
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.launch.types import HOST, FlagValue, LaunchConfig, Scalar, spelled_flag


def missing_program(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> str | None:
    """The problem if the server's program is not found; None if it is."""
    program = command[0]
    if os.sep in program:
        path = shutil.which(folder / program)
        return None if path else f"{program} does not exist in {folder}, or is not executable"
    if shutil.which(program, path=environment.get("PATH", os.defpath)):
        return None
    hint = "pip install vllm, or set launch.command" if program == "vllm" else "install it, or give its full path"
    return f"the program {program} is not found on the PATH; {hint}"


NO_VARIABLES: Mapping[str, str] = {}
SLEEP_VARIABLES = {"VLLM_SERVER_DEV_MODE": "1"}
"""Variables that vLLM needs to support /sleep and /wake_up."""
VLLM_FLAGS: Mapping[str, FlagValue] = {"generation-config": "vllm"}
"""Without this flag vLLM takes omitted settings, such as top_k, from a file of the model, which no result shows."""
PLACEHOLDER = re.compile(r"\{(port|host|model|place)\}")


def server_command(launch: LaunchConfig, served: str, port: str = "PORT", place: str = "PLACE") -> tuple[str, ...]:
    """The words of the command that starts the server; by default with placeholders for port and place."""
    command_words = launch.command_words
    if command_words is not None:
        return tuple(_fill_placeholders(word, served, port, place) for word in command_words)
    flags: dict[str, FlagValue] = {"served-model-name": served, "host": HOST, "port": port, **VLLM_FLAGS}
    if launch.sleep:
        flags["enable-sleep-mode"] = True
    flags |= {spelled_flag(name): value for name, value in launch.flags.items()}
    return ("vllm", "serve", served, *(word for flag in flags.items() for word in _flag_words(*flag)))


def server_environment(
    launch: LaunchConfig,
    served: str,
    port: str,
    environment: Mapping[str, str],
    place: str = "",
    pool_variables: Mapping[str, str] = NO_VARIABLES,
) -> Mapping[str, str]:
    """Environment of the server; `pool_variables` are the variables of every server of a pool."""
    own = SLEEP_VARIABLES if launch.sleep and launch.command_words is None else {}
    variables = {**own, **pool_variables, **launch.env}
    filled = {name: _fill_placeholders(str(value), served, port, place) for name, value in variables.items()}
    return {**environment, **filled}


def _fill_placeholders(text: str, served: str, port: str, place: str) -> str:
    values = {"port": port, "host": HOST, "model": served, "place": place}
    return PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _flag_words(name: str, value: FlagValue) -> Iterator[str]:
    """Words of one flag: `--name`, `--no-name`, `--name value ...`, or nothing."""
    if value is None:
        return
    if isinstance(value, bool):
        yield f"--{name}" if value else f"--no-{name}"
        return
    yield f"--{name}"
    if isinstance(value, tuple):
        yield from map(_as_word, value)
    else:
        yield json.dumps(value) if isinstance(value, Mapping) else _as_word(value)


def _as_word(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


PORT_RANGE = range(20_000, 30_000)
"""Below the range of outgoing connections, since a server may bind its port minutes after it was chosen."""
MAX_TRIES = 1000


def free_ports() -> Iterator[int]:
    """Random distinct free ports, reserved among runs on this machine until the generator is closed.

    Many servers listen only once their model is loaded. If two were started at the same port meanwhile, both would seem
    ready with the first of them, which would answer for both. A port is reserved, for all users, by binding the UDP
    port of the same number, which model servers do not use.
    """
    descriptors: list[int] = []
    try:
        yield from (
            port for port in random.sample(PORT_RANGE, MAX_TRIES) if is_free(port) and _reserve(port, descriptors)
        )
        raise LaunchFailed(f"no free port was found among {MAX_TRIES} between {PORT_RANGE[0]} and {PORT_RANGE[-1]}")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _reserve(port: int, descriptors: list[int]) -> bool:
    """Reserve a port by a descriptor, which is added to `descriptors`; False if it is already reserved."""
    reserving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        reserving.bind((HOST, port))
    except OSError as error:  # other errors say nothing about the port, which was chosen at random
        reserving.close()
        return error.errno != errno.EADDRINUSE
    descriptors.append(reserving.detach())  # a socket would warn if it were collected
    return True


def is_free(port: int) -> bool:
    """Whether nothing listens at a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
