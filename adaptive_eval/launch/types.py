"""The `launch` section of a model: the server that the run starts for it."""

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from adaptive_eval.base.sections import Seconds, Section, config_error

FLAG = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
OWN_FLAGS = ("host", "port", "model", "served-model-name")
"""Flags of vLLM that the run sets itself."""
ONE_LINE = r"^[^\x00-\x1f\x7f]+$"
MAX_PLACE_CHARS = 100
GPU_NAMES = re.compile(r"(?:\d+|(?:GPU|MIG)-[\w/-]+)(?:,(?:\d+|(?:GPU|MIG)-[\w/-]+))*")
"""Names of GPUs in `CUDA_VISIBLE_DEVICES`."""
HOST = "127.0.0.1"
"""Address that servers started by a run listen on."""
GRACE_SECONDS = 20.0
"""Time between asking a server to end and killing it; one on several GPUs takes some seconds to end."""

Scalar = str | bool | int | float
VariableValue = str | int | float
FlagValue = Scalar | tuple[Scalar, ...] | Mapping[str, object] | None


def require_variables(env: Mapping[str, VariableValue]) -> Mapping[str, VariableValue]:
    """Check that all variables have valid names."""
    if invalid := [name for name in env if not re.fullmatch(r"[A-Za-z_]\w*", name)]:
        raise config_error(f"must hold names of variables, but {invalid[0]!r} is not one", "use letters, digits and _")
    return env


def require_amounts(resources: Mapping[str, float] | None) -> Mapping[str, float] | None:
    """Check that all resources have amounts that a node could have."""
    for word, amount in (resources or {}).items():
        if not word.strip() or not 0 <= amount < float("inf"):
            raise config_error(f"must hold amounts, but got {word!r}: {amount}", "write it as in {GPU: 8, CPU: 4}")
    return resources


Variables = Annotated[Mapping[str, VariableValue], AfterValidator(require_variables)]
Resources = Annotated[Mapping[str, float] | None, AfterValidator(require_amounts)]


def _check_places(places: int | tuple[str | int, ...]) -> int | tuple[str | int, ...]:
    """Check that places have different names of one line."""
    words = [] if isinstance(places, int) else [str(place) for place in places]
    if invalid := [word for word in words if not re.fullmatch(ONE_LINE, word) or len(word) > MAX_PLACE_CHARS]:
        raise config_error(f"must be words of one line each, but {invalid[0]!r} is not", "such as pool: [0, 1]")
    if repeated := sorted({word for word in words if words.count(word) > 1}):
        raise config_error(f"must have different names, but {repeated[0]} is listed twice", "name each place once")
    return places


Pool = Annotated[
    Annotated[int, Field(ge=1, le=1024)] | Annotated[tuple[str | int, ...], Field(min_length=1)],
    AfterValidator(_check_places),
]
"""Names of places of this machine, or the number of places of a cluster."""


def place_names(pool: Pool) -> tuple[str, ...]:
    """Names of the places of a pool."""
    if isinstance(pool, int):
        return tuple(f"place {number}" for number in range(1, pool + 1))
    return tuple(str(place) for place in pool)


def place_variables(pool: Pool) -> Mapping[str, str]:
    """Environment variables of every server of a pool, in which {place} is its place, if its places are named as CUDA
    names GPUs; on a cluster Ray sets them."""
    is_of_gpus = not isinstance(pool, int) and all(GPU_NAMES.fullmatch(name) for name in place_names(pool))
    return {"CUDA_VISIBLE_DEVICES": "{place}"} if is_of_gpus else {}


class LaunchConfig(Section):
    """A server that the run starts when the model has requests, and stops at the end.

    By default `vllm serve` with the model's `model`, a path or a name on Hugging Face. It listens on a free port of the
    loopback address, inherits the environment, runs in the folder of the configuration, and writes to the folder `logs`
    of the run.
    """

    env: Variables = Field(default_factory=dict)
    """Environment variables of the server, such as CUDA_VISIBLE_DEVICES: "0,1". {port}, {host}, {model} (the name to
    serve the model under) and {place} (of the pool) are filled in."""
    command: str | tuple[str, ...] | None = None
    """Command of another server than vLLM, without a shell: a line or a list of words, with {port} etc. as in `env`."""
    flags: Mapping[str, FlagValue] = Field(default_factory=dict)
    """Flags of vLLM without dashes, such as `tensor-parallel-size: 2`. true and false switch a flag, a list becomes
    several words, a mapping JSON, and null removes a default of this program (`generation-config: vllm`)."""
    sleep: bool | Literal[2] = False
    """When another model gets the place, put the server to sleep instead of stopping it (vLLM's sleep mode, for GPUs).
    The weights stay in main memory, so that a swap takes seconds; with 2 they are read from disk again. A server of
    your own `command` must support POST /sleep?level=1 and /wake_up, for 2 also /collective_rpc."""
    timeout: Seconds = Field(900.0, gt=0)
    """Time for the server to become ready (`/health`, or without one `/v1/models`, answers 200): "15m", or seconds."""
    sites: int = Field(1, ge=1, le=1024)
    """With `--ray`: number of sites that serve the model at the same time."""
    resources: Resources = None
    """With `--ray`: Ray resources of each site, such as {GPU: 8, CPU: 4}. Default: one CPU, and the model's `gpus`; if
    these are not given, the GPUs among which vLLM's flags split the model, or none with a `command`."""

    @field_validator("command")
    @classmethod
    def _can_be_run(cls, command: str | tuple[str, ...] | None, info: ValidationInfo) -> object:
        if command is None:
            return None
        words = split_command(command)
        texts = (*words, *map(str, info.data.get("env", {}).values()))
        if not any("{port}" in text for text in texts):
            raise config_error("must have {port}, since the run chooses a free port", "add it, as in --port {port}")
        return command

    @field_validator("flags")
    @classmethod
    def _are_flags_of_vllm(cls, flags: Mapping[str, FlagValue], info: ValidationInfo) -> Mapping[str, FlagValue]:
        if info.data.get("command") is not None and flags:
            raise config_error(
                "is for vLLM, which `command` replaces", "write it into the command, or remove the command"
            )
        for name in flags:
            if not re.fullmatch(FLAG, name):
                raise config_error(f"must hold names of flags, but got {name!r}", "leave the dashes out: max-model-len")
            if spelled_flag(name) in OWN_FLAGS:
                raise config_error(f"may not hold {name}, which the run sets itself", "remove it")
        if len({spelled_flag(name) for name in flags}) < len(flags):
            raise config_error("has a flag twice, with - and with _", "keep one of the two")
        return flags

    @property
    def command_words(self) -> tuple[str, ...] | None:
        """The command's words; None for vLLM."""
        return None if self.command is None else split_command(self.command)

    @property
    def names_place(self) -> bool:
        """Whether the command or its variables contain {place}."""
        return any("{place}" in text for text in (*(self.command_words or ()), *map(str, self.env.values())))


def spelled_flag(flag: str) -> str:
    """Spell a flag as in vLLM's help."""
    return flag.replace("_", "-")


def split_command(
    command: str | tuple[str, ...], example: str = "`llama-server -m x.gguf --port {port}`"
) -> tuple[str, ...]:
    """The words of a command; `example` shows one in messages."""
    try:
        words = tuple(shlex.split(command)) if isinstance(command, str) else command
    except ValueError as error:
        raise config_error(
            f"cannot be split into words: {error}", "close the quotes, or write a list of words"
        ) from None
    if not words or not words[0] or any("\0" in word for word in words):
        raise config_error("must be a command and its arguments", f"such as {example}")
    return words
