"""What the command line returns."""

from enum import IntEnum

from adaptive_eval.errors import ConfigError, EndpointError, RunChanged


class ExitCode(IntEnum):
    """What the command line returns."""

    REACHED = 0
    """The objective was reached: every comparison is resolved or tied."""
    FAILED = 1
    """The run directory cannot be used, or the disk is full; what was committed is intact."""
    CONFIGURATION = 2
    """The configuration, the questions or an argument is wrong."""
    SPENT = 3
    """The budget or the horizon came first, or answers that the grader cannot grade: something is not decided."""
    STOPPED = 4
    """The user stopped the run."""
    ENDPOINTS = 5
    """The models' servers could not be used."""
    WORSE = 6
    """A model is worse than the baseline, and `objective.gate` was set."""
    RUNNING = 7
    """The run goes on; only `monitor` returns it."""


def exit_code_of(error: Exception) -> ExitCode:
    """What an error means for whoever started the program."""
    match error:
        case ConfigError() | RunChanged():
            return ExitCode.CONFIGURATION
        case EndpointError():
            return ExitCode.ENDPOINTS
        case _:
            return ExitCode.FAILED
