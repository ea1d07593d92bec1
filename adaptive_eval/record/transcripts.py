"""The last message of a trial that Inspect ran, from the transcript in Inspect's log.

A log may be anybody's, as all of a run that was handed over: Inspect's own functions read it, in a process of its own,
and no file outside of the run's folder of logs is opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.errors import ConfigError
from adaptive_eval.questions.benchmark import INSPECT_LOGS, sample_name
from adaptive_eval.store import TrialRecord

GONE = "Inspect's log is not there any more, so that its transcript cannot be shown."
UNWRITTEN = "Inspect has not written this sample into its log yet, or the log is damaged ({})."


@dataclass(frozen=True, slots=True)
class TranscriptEnd:
    """The last message of a transcript."""

    log: str
    """Its log, from the directory of the run."""
    sample: str
    """The id of its sample there."""
    role: str | None
    """Who said it; None where it cannot be read."""
    text: str
    """What was said, or why that is not known."""


def is_from_inspect(record: TrialRecord) -> bool:
    """Whether Inspect has a transcript of the trial."""
    return record.answer.replica.startswith(f"{INSPECT_LOGS}/")


def transcript_ends(directory: Path, records: Sequence[TrialRecord]) -> list[TranscriptEnd]:
    """The last message of each of these trials of Inspect, read by one process."""
    pointers = [(one.answer.replica, sample_name(one.question, one.trial, one.answer.attempts)) for one in records]
    logs = {log: path for log, _ in pointers if (path := _inside(directory, log)) is not None}
    wanted = [(log, sample) for log, sample in pointers if log in logs]
    found: dict[tuple[str, str], TranscriptEnd] = {}
    try:
        # imported here: it is part of an extra
        from adaptive_eval.inspect.process import read_last_messages
        from adaptive_eval.inspect.types import LoggedSample

        asked = [LoggedSample(log=str(logs[log]), id=sample) for log, sample in wanted]
        for pointer, told in zip(wanted, read_last_messages(asked) if asked else (), strict=True):
            text = UNWRITTEN.format(told["problem"]) if "problem" in told else told["text"]
            found[pointer] = TranscriptEnd(*pointer, told.get("role"), text)
    except (ConfigError, ImportError) as error:
        found = {pointer: TranscriptEnd(*pointer, None, f"{error}.") for pointer in wanted}
    return [found.get(pointer) or TranscriptEnd(*pointer, None, GONE) for pointer in pointers]


def _inside(directory: Path, log: str) -> Path | None:
    """The path of a log; None where it is no file of the run's folder of logs."""
    path = directory / log
    try:
        inside = path.is_file() and path.resolve().parent == (directory / INSPECT_LOGS).resolve()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return path.absolute() if inside else None
