"""The tree of errors that `adaptive-eval` raises, and the exit codes of the command line."""

from collections.abc import Sequence
from enum import IntEnum


def first_line(reason: str) -> str:
    """A reason without its further lines, such as those of a log."""
    return reason.partition("\n")[0]


def first_lines(lines: Sequence[str], most: int) -> list[str]:
    """Lines of a message, indented; those beyond `most` are only counted."""
    more = len(lines) - most
    return [f"  {line}" for line in [*lines[:most], *([f"and {more} more"] if more > 0 else [])]]


class AdaptiveEvalError(Exception):
    """The root of the tree."""


class ConfigError(AdaptiveEvalError):
    """The configuration, the questions or an argument is wrong."""


class ForeignScorio(AdaptiveEvalError, ImportError):
    """The package `scorio` that is found is not the one that belongs to this program."""


class StoreError(AdaptiveEvalError):
    """The run directory cannot be used."""


class RunLocked(StoreError):
    """Another process holds the run directory."""


class RunChanged(StoreError):
    """A resume would change what the trials mean."""


class StoreFull(StoreError):
    """The disk or database takes no more; what was committed is intact."""


class EndpointError(AdaptiveEvalError):
    """A model server did not give an answer."""


class Retryable(EndpointError):
    """A failure that is worth another attempt with the same seed: 429, 5xx, reset, timeout, an unhealthy replica."""


class Rejected(EndpointError):
    """A server refuses a request, and no retry can mend that: 400, 401, 403, 404."""


class Unavailable(EndpointError):
    """No replica of the model is left."""


class RetryNotAllowed(EndpointError):
    """An answer was lost, and the caps do not allow a retry."""


class LaunchFailed(EndpointError):
    """A server that the run was to start does not come up, or not again."""


class GraderError(AdaptiveEvalError):
    """A grader failed; the answer is kept and can be graded again."""


class GraderExhausted(GraderError):
    """The grader's time or memory was used up, or its process ended, at every attempt: another would cost the same."""


class PartialCredit(GraderError):
    """A score is neither right nor wrong, and the rubric has no category for it."""


class JudgeFailed(GraderExhausted):
    """A judge gave no verdict, or could not be asked; asking again would cost again."""

    def __init__(self, reason: str, cost: object = None) -> None:
        super().__init__(reason)
        self.cost = cost
        """What was spent nevertheless (`core.types.Cost`)."""


class Alarmed(AdaptiveEvalError):
    """The answers cannot be what was asked for; every one of them is stored, and the run can go on."""


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    REACHED = 0
    """The objective was reached: every comparison is resolved or tied."""
    FAILED = 1
    """The run directory cannot be used, or the disk is full; what was committed is intact."""
    CONFIGURATION = 2
    """The configuration, the questions or an argument is wrong."""
    SPENT = 3
    """A comparison is undecided: the budget or horizon was reached, answers had no grade, or an alarm ended the run."""
    STOPPED = 4
    """The user stopped the run, or any command while it began."""
    ENDPOINTS = 5
    """The models' servers could not be used."""
    WORSE = 6
    """A model is worse than the baseline by more than delta, and `objective.gate` was set."""
    RUNNING = 7
    """The run goes on; only `monitor` returns it."""


def error_exit_code(error: Exception) -> ExitCode:
    """Exit code of an error."""
    match error:
        case ConfigError() | RunChanged():
            return ExitCode.CONFIGURATION
        case Alarmed():
            return ExitCode.SPENT
        case EndpointError():
            return ExitCode.ENDPOINTS
        case _:
            return ExitCode.FAILED
