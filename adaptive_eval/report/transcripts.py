"""The last message of a trial that Inspect ran, from the transcript in Inspect's log.

The log of a run that was handed over is untrusted: it is read as every log of another tool, and no file outside the
run's folder of logs is opened.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.questions.benchmark import INSPECT_LOGS, sample_name
from adaptive_eval.report.log_files import Archive, LogError, LogFile, open_log
from adaptive_eval.report.records import TrialRecord

LOG_MISSING = "Inspect's log no longer exists, so its transcript cannot be shown."
SAMPLE_MISSING = "Inspect has not written this sample into its log yet, or the log is damaged ({})."
ATTACHED = "attachment://"
MAX_TEXT = 1_000_000
"""Most characters that are shown; the log has all of them."""


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


def transcript_end(directory: Path, record: TrialRecord) -> TranscriptEnd:
    """Read the last message of a trial of Inspect."""
    log = record.answer.replica
    sample = sample_name(record.question, record.trial, record.answer.attempts)
    if (path := _log_path(directory, log)) is None:
        return TranscriptEnd(log, sample, None, LOG_MISSING)
    file, member = LogFile(path), f"samples/{sample}_epoch_1.json"
    try:
        with open_log(file) as handle:
            archive = Archive(file, handle)
            if member not in archive.names:
                raise file.refuse(f"has no {member}")
            role, text = _last_message(archive.json(member))
    except LogError as error:
        return TranscriptEnd(log, sample, None, SAMPLE_MISSING.format(str(error).removeprefix(f"{path}: ")))
    except ConfigError as error:  # a package is missing
        return TranscriptEnd(log, sample, None, f"{error}.")
    return TranscriptEnd(log, sample, role, text[:MAX_TEXT])


def _last_message(sample: Any) -> tuple[str | None, str]:
    """Role and text of the last message of a sample, with the calls of tools in it."""
    try:
        last, attachments = sample["messages"][-1], sample.get("attachments") or {}
        content = last["content"]
        texts = [content] if isinstance(content, str) else [part.get("text") or f"[{part['type']}]" for part in content]
        parts, room = [], MAX_TEXT
        for text in texts:
            full_text = attachments[text[len(ATTACHED) :]] if text.startswith(ATTACHED) else text
            parts.append(full_text[:room])  # a stranger's log may name one long attachment a million times
            room -= len(parts[-1])
        paragraphs = [" ".join(parts)]
        for call in last.get("tool_calls") or ():
            paragraphs.append(f"[calls {call['function']} with {orjson.dumps(call['arguments']).decode()}]")
        return str(last["role"]), "\n".join(filter(None, paragraphs))
    except (LookupError, TypeError, AttributeError) as error:  # a log may hold anything
        return None, SAMPLE_MISSING.format(f"no message can be read: {type(error).__name__}")


def _log_path(directory: Path, log: str) -> Path | None:
    """Path of a log; None if it is no file in the run's folder of logs."""
    path = directory / log
    try:
        inside = path.is_file() and path.resolve().parent == (directory / INSPECT_LOGS).resolve()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return path.absolute() if inside else None
