"""The programs that a run starts, and whether they are there."""

from collections.abc import Iterator, Mapping

from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.launch.command import command_of, environment_of
from adaptive_eval.launch.program import missing_program
from adaptive_eval.launch.types import LaunchConfig


def missing_programs(config: RunConfig, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names of launched models whose program is not there, and what is wrong."""
    for model in config.models:
        if model.launch is not None:
            sees = environment_of(model.launch, model.model, "", environment)
            problem = missing_program(launch_words(model, model.launch), sees, config.folder)
            if problem is not None:
                yield model.name, problem


def launch_words(model: ModelConfig, launch: LaunchConfig, port: str = "PORT") -> tuple[str, ...]:
    """The command that is run for a model."""
    return command_of(launch, model.model, port)
