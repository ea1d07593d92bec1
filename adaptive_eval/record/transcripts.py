"""The last message of a trial that Inspect ran, from the transcript in Inspect's log.

The log of a run that was handed over is untrusted: Inspect's own functions read it, in a separate process, and no file
outside the run's folder of logs is opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.errors import ConfigError
from adaptive_eval.questions.benchmark import INSPECT_LOGS, sample_name
from adaptive_eval.store import TrialRecord

LOG_MISSING = "Inspect's log is not there any more, so that its transcript cannot be shown."
SAMPLE_MISSING = "Inspect has not written this sample into its log yet, or the log is damaged ({})."


@dataclass(frozen=True, slots=True)
class TranscriptEnd:
    """The last message of a transcript."""

    log: str
    """Path of the log, relative to the directory of the run."""
    sample: str
    """Id of the sample in the log."""
    role: str | None
    """Role of the speaker; None if the message cannot be read."""
    text: str
    """The message, or why it cannot be read."""


def is_from_inspect(record: TrialRecord) -> bool:
    """Whether Inspect has a transcript of the trial."""
    return record.answer.replica.startswith(f"{INSPECT_LOGS}/")


def transcript_ends(directory: Path, records: Sequence[TrialRecord]) -> list[TranscriptEnd]:
    """Read the last message of each of these trials of Inspect, in one process."""
    pointers = [(one.answer.replica, sample_name(one.question, one.trial, one.answer.attempts)) for one in records]
    logs = {log: path for log, _ in pointers if (path := _log_path(directory, log)) is not None}
    wanted = [(log, sample) for log, sample in pointers if log in logs]
    found: dict[tuple[str, str], TranscriptEnd] = {}
    try:
        # imported here: it is part of an extra
        from adaptive_eval.inspect.process import read_last_messages
        from adaptive_eval.inspect.types import LoggedSample

        asked = [LoggedSample(log=str(logs[log]), id=sample) for log, sample in wanted]
        for pointer, told in zip(wanted, read_last_messages(asked) if asked else (), strict=True):
            text = SAMPLE_MISSING.format(told["problem"]) if "problem" in told else told["text"]
            found[pointer] = TranscriptEnd(*pointer, told.get("role"), text)
    except (ConfigError, ImportError) as error:
        found = {pointer: TranscriptEnd(*pointer, None, f"{error}.") for pointer in wanted}
    return [found.get(pointer) or TranscriptEnd(*pointer, None, LOG_MISSING) for pointer in pointers]


def _log_path(directory: Path, log: str) -> Path | None:
    """Path of a log; None if it is no file in the run's folder of logs."""
    path = directory / log
    try:
        inside = path.is_file() and path.resolve().parent == (directory / INSPECT_LOGS).resolve()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return path.absolute() if inside else None
