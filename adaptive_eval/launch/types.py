"""The `launch` section of a model: the server that the run starts for it."""

import re
import shlex
from collections.abc import Mapping

from pydantic import Field, ValidationInfo, field_validator

from adaptive_eval.sections import Seconds, Section, refuse

FLAG = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
OWN_FLAGS = ("host", "port", "model", "served-model-name")
"""Flags of vLLM that the run sets itself."""
ONE_LINE = r"^[^\x00-\x1f\x7f]+$"

Scalar = str | bool | int | float
FlagValue = Scalar | tuple[Scalar, ...] | Mapping[str, object] | None


class LaunchConfig(Section):
    """A server that the run starts for this model when it has something to ask, and stops in the end.

    Without `command` it is `vllm serve`. The server listens on this machine alone, on a port that is free; it inherits
    the environment, runs in the folder of the configuration, and writes to the folder `logs` of the run.
    """

    env: Mapping[str, str | int | float] = Field(default_factory=dict)
    """Variables for the server, over those of the environment, such as CUDA_VISIBLE_DEVICES: "0,1"."""
    command: str | tuple[str, ...] | None = None
    """Another server than vLLM: its command, as one line or a list of words. {port}, {host} and {model} (the name it is
    to serve the model under) are filled in; no shell reads it."""
    model: str | None = Field(None, min_length=1)
    """What vLLM loads: a path, or a name on Hugging Face; default: the model's `model`."""
    flags: Mapping[str, FlagValue] = Field(default_factory=dict)
    """Flags of vLLM without the dashes: `tensor-parallel-size: 2`; true and false switch, a list becomes several words,
    a mapping JSON, and null takes a default of ours away (`generation-config: vllm`)."""
    exclusive: str | None = Field(None, pattern=ONE_LINE, max_length=100)
    """Models with the same word here, such as gpu0, are served in turn, one at a time; other runs of the same user on
    this machine wait until this one has ended."""
    health: str = "/health"
    """A path that answers 200 when the server is ready."""
    timeout: Seconds = Field(900.0, gt=0)
    """How long the server may take until it is ready: "15m", or seconds."""

    @field_validator("env")
    @classmethod
    def _names_variables(cls, env: Mapping[str, object]) -> Mapping[str, object]:
        if wrong := [name for name in env if not re.fullmatch(r"[A-Za-z_]\w*", name)]:
            raise refuse(f"must hold names of variables, but {wrong[0]!r} is none", "use letters, digits and _")
        return env

    @field_validator("command")
    @classmethod
    def _can_be_run(cls, command: str | tuple[str, ...] | None, info: ValidationInfo) -> object:
        if command is None:
            return None
        words = _words(command)
        texts = (*words, *map(str, info.data.get("env", {}).values()))
        if not any("{port}" in text for text in texts):
            raise refuse("must have {port}, since the run chooses a port that is free", "add it, as in --port {port}")
        return command

    @field_validator("model", "flags")
    @classmethod
    def _goes_with_vllm(cls, given: object, info: ValidationInfo) -> object:
        if info.data.get("command") is not None and given:
            raise refuse("is for vLLM, which `command` replaces", "write it into the command, or remove the command")
        return given

    @field_validator("flags")
    @classmethod
    def _are_flags(cls, flags: Mapping[str, FlagValue]) -> Mapping[str, FlagValue]:
        for name in flags:
            if not re.fullmatch(FLAG, name):
                raise refuse(f"must hold names of flags, but got {name!r}", "leave the dashes out: max-model-len")
            if spelled_flag(name) in OWN_FLAGS:
                raise refuse(f"may not hold {name}, which the run sets itself", "remove it")
        if len({spelled_flag(name) for name in flags}) < len(flags):
            raise refuse("has a flag twice, with - and with _", "keep one of the two")
        return flags

    @field_validator("health")
    @classmethod
    def _is_a_path(cls, health: str) -> str:
        if not re.fullmatch(r"/[!-~]*", health):
            raise refuse("must be a path that begins with /", "such as /health or /v1/models")
        return health

    @property
    def words(self) -> tuple[str, ...] | None:
        """The command's words; None for vLLM."""
        return None if self.command is None else _words(self.command)


def spelled_flag(flag: str) -> str:
    """A flag as vLLM's help spells it."""
    return flag.replace("_", "-")


def _words(command: str | tuple[str, ...]) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command)) if isinstance(command, str) else command
    except ValueError as error:
        raise refuse(f"cannot be split into words: {error}", "close the quotes, or write a list of words") from None
    if not words or not words[0] or any("\0" in word for word in words):
        raise refuse("must be a command and its arguments", "such as `llama-server -m x.gguf --port {port}`")
    return words
