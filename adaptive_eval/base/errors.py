"""The exceptions of `adaptive-eval`, and the exit codes of the command line."""

from collections.abc import Mapping, Sequence
from enum import IntEnum


def first_line(reason: str) -> str:
    """The first line of a reason, without further lines such as those of a log."""
    return reason.partition("\n")[0]


def first_lines(lines: Sequence[str], limit: int) -> list[str]:
    """The first `limit` lines of a message, indented, and the number of omitted lines."""
    omitted = len(lines) - limit
    return [f"  {line}" for line in [*lines[:limit], *([f"and {omitted} more"] if omitted > 0 else [])]]


class AdaptiveEvalError(Exception):
    """Base class of all errors."""


class ConfigError(AdaptiveEvalError):
    """The configuration, the questions or an argument is wrong."""


class ForeignScorio(AdaptiveEvalError, ImportError):
    """The installed package `scorio` is not the one of this program."""


class StoreError(AdaptiveEvalError):
    """The run directory cannot be used."""


class DamagedValue(StoreError):
    """A stored value that no run has written. Who opens the run names it (`store.errors.name_run`)."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; restore a copy of the run")
        self.what = what


class RunLocked(StoreError):
    """Another process holds the run directory."""


class RunChanged(StoreError):
    """A resume would change the fingerprint of the run."""


class StoreFull(StoreError):
    """The disk or database is full; committed data are intact."""


class EndpointError(AdaptiveEvalError):
    """A model server did not answer."""


class Retryable(EndpointError):
    """A failure that is worth another attempt with the same seed: 429, 5xx, reset, timeout, an unhealthy replica."""


class Rejected(EndpointError):
    """A server refuses a request, and a retry would not help: 400, 401, 403, 404."""


class Copied(Rejected):
    """A server answers requests with the responses to others, which are no samples."""


class Unavailable(EndpointError):
    """The model has no usable replica."""


class RetryNotAllowed(EndpointError):
    """An answer was lost, and the caps do not allow a retry."""


class LaunchFailed(EndpointError):
    """A server that the run launches does not start or restart."""


class GraderError(AdaptiveEvalError):
    """A grader failed; the answer is stored and can be graded again."""


class PartialCredit(GraderError):
    """A score is neither right nor wrong, and the rubric has no category for it."""


class JudgeFailed(GraderError):
    """A judge gave no verdict, or did not reply."""

    def __init__(self, reason: str, cost: object = None, usage: Mapping[str, bool | float | str] | None = None) -> None:
        super().__init__(reason)
        self.cost = cost
        """The cost of the failed requests (`core.types.Cost`)."""
        self.usage = usage or {}
        """The same as signals, which stay with the answer in exports."""


class Alarmed(AdaptiveEvalError):
    """The answers are implausible, so an alarm stopped the run; all answers are stored, and the run can be resumed."""


NEW_RUN = "start a new run: another --run-dir, or --fresh without --run-dir"
"""The way out of a run directory that cannot be used for what is asked now."""


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    REACHED = 0
    """The objective was reached: every comparison is resolved or tied."""
    FAILED = 1
    """The run directory cannot be used, or the disk is full; committed data are intact."""
    CONFIGURATION = 2
    """The configuration, the questions or an argument is wrong."""
    SPENT = 3
    """A comparison is undecided: the budget or horizon was reached, answers lack grades, or an alarm ended it."""
    STOPPED = 4
    """The user stopped the run, or any command during its start."""
    ENDPOINTS = 5
    """The models' servers could not be used."""
    WORSE = 6
    """A model is worse than the baseline, or below the value, by more than delta, and `objective.gate` was set."""
    RUNNING = 7
    """The run is still running; only `monitor` returns it."""


def stop_in_words(reason: str, exit_code: ExitCode | None) -> str:
    """Say that this alarm, or error, stopped a run; an alarm has the exit code of an undecided run."""
    return f"stopped by an {'alarm' if exit_code is ExitCode.SPENT else 'error'}: {reason}"


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
