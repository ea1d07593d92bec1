"""Answers of a dry run: trials of the run that it tried, kept in a hidden folder of the run's directory.

They have the seeds and settings of the run, so that `run` begins with them, and `plan` knows how long answers are.
After a change of settings that trials depend on they are another run's, and are not used; nor are they after a change
of prices, if the cheapest is to be chosen.
"""

from pathlib import Path

from adaptive_eval.base.errors import RunChanged
from adaptive_eval.config.fingerprint import require_same_meaning
from adaptive_eval.config.prepare import stored_config
from adaptive_eval.report.changes import repriced_models
from adaptive_eval.report.lines import several
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.locate import has_database

DRY_RUN = ".dry-run"
"""The folder, in the directory of the run."""


def matching_dry_run(directory: Path, header: RunHeader) -> Path | None:
    """The folder with answers of a dry run; None if there are none. Raises `RunChanged` if it had other settings."""
    folder = directory / DRY_RUN
    if not has_database(folder):
        return None
    with RunReader.intact(folder) as reader:
        stored = reader.header()
        require_same_meaning(stored, header, folder)
    if names := repriced_models([stored_config(stored)], stored_config(header)):
        raise RunChanged(f"{folder} has answers at other prices:\n  the price or the gpus of {', '.join(names)}")
    return folder


def dry_run_note(directory: Path, header: RunHeader) -> str | None:
    """Whether a new run uses the answers of a dry run; None if there are none."""
    try:
        folder = matching_dry_run(directory, header)
    except RunChanged as error:
        changes = str(error).splitlines()[1:2]
        return f"the answers of the dry run are not used, since it had other settings:{''.join(changes)}"
    if folder is None:
        return None
    with RunReader.intact(folder) as reader:
        usable = sum(trial.model in header.models and trial.question in header.questions for trial in reader.trials())
    return f"begins with {several(usable, 'answer')} of the dry run"
