"""The user's command that is told how a run has ended: one line on its standard input."""

import os
import subprocess
import sys
from dataclasses import replace

from adaptive_eval.base.errors import AdaptiveEvalError, error_exit_code, first_line, stop_in_words
from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.secrets import remove_keys
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.lines import capitalised

TIMEOUT_SECONDS = 30.0


def end_line(name: str, ended: Ended) -> str:
    """One line about the end of a run, with its first finding."""
    status = replace(ended.status, results=ended.results)  # with answers that were asked ahead
    finding = next((f" {sentence}" for sentence in status.finding[:1] if sentence not in ended.why), "")
    return first_line(f"{name}: {ended.why.rstrip('.')}.{finding}")


def error_line(name: str, error: Exception) -> str:
    """The error that has ended a run; the text of an unforeseen one may hold anything, and is left out."""
    foreseen = isinstance(error, AdaptiveEvalError)
    text = first_line(str(error)) if foreseen else f"an unexpected error ({type(error).__name__})"
    return f"{name}: {capitalised(stop_in_words(text, error_exit_code(error)))}"


def notify_end(config: RunConfig, line: str) -> None:
    """Run the command with this line, if there is one; its failure is a warning."""
    if config.notify is None:
        return
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(
            config.notify,
            input=f"{line}\n".encode(),
            stdout=nothing,
            stderr=nothing,
            cwd=config.folder,
            env=remove_keys(os.environ, config.keys),
            timeout=TIMEOUT_SECONDS,
            start_new_session=True,  # Ctrl-C is for the run
            check=False,
        )
        problem = f"the command has ended with exit code {done.returncode}" if done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:  # its text may have the arguments
        problem = f"the command could not be run to its end ({type(error).__name__})"
    if problem is not None:
        print(f"warning: notify: {problem}", file=sys.stderr, flush=True)
