"""The formats by name, and how one is written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_eval.errors import ConfigError
from adaptive_eval.exchange.arrays import write_npz
from adaptive_eval.exchange.inspect.writer import ENDING, write_logs
from adaptive_eval.exchange.source import ExportSource, OnProgress, opened_source
from adaptive_eval.exchange.tables.writer import write_csv, write_jsonl
from adaptive_eval.files import new_file, new_folder
from adaptive_eval.store.address import beside


class ExportFormat(NamedTuple):
    """One format: what its files are called, and who writes them."""

    place: str
    """Name of an export in the run directory, if no other is given."""
    write: Callable[[ExportSource, Path, bool, OnProgress], None]
    """Writes the run to a path, with or without what the models wrote, and tells how many trials are written."""
    texts: bool | None = None
    """Whether what the models wrote is written unless it is said otherwise; None: nobody is asked."""
    ending: str | None = None
    """Ending of its files, if it is a folder of files."""


EXPORTS: dict[str, ExportFormat] = {
    "npz": ExportFormat("tensor.npz", lambda source, path, _, tell: write_npz(source, path, tell)),
    "csv": ExportFormat("trials.csv", write_csv, texts=False),
    "jsonl": ExportFormat("trials.jsonl", write_jsonl, texts=True),
    "inspect": ExportFormat("inspect", lambda source, path, _, tell: write_logs(source, path, tell), ending=ENDING),
}
"""Every format by its name: one line each."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A run to export, the format, and the target."""

    directory: Path
    format: str
    output: Path | None = None
    force: bool = False
    texts: bool | None = None
    """None: as is usual for the format."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Counts of what an export has written."""

    path: Path
    trials: int
    models: int
    untried: int
    """Questions that a model has no trial of, over all models."""


def export(request: ExportRequest, on_progress: OnProgress | None = None) -> ExportResult:
    """Write a run in a format; raises `ConfigError` and `StoreError`, and then has written nothing."""
    form = EXPORTS[request.format]
    path = request.output or beside(request.directory, form.place)
    if request.texts is not None and form.texts is None:
        having = ", ".join(name for name, one in EXPORTS.items() if one.texts is not None)
        raise ConfigError(f"--text and --no-text are for {having}, but the format is {request.format}; leave them out")
    if path == Path("-"):
        raise ConfigError("an export is a file or a folder, not the standard output; name one after --output")
    texts = bool(form.texts if request.texts is None else request.texts)
    with opened_source(request.directory) as source:
        folder_or_file = (
            new_file(path, request.force) if form.ending is None else new_folder(path, request.force, form.ending)
        )
        with folder_or_file as draft:
            form.write(source, draft, texts, on_progress or _ignore_progress)
        return ExportResult(
            path=path,
            trials=source.reader.trial_count(),
            models=len(source.models),
            untried=int(np.count_nonzero(source.extent == 0)),
        )


def _ignore_progress(trials: int) -> None:
    """Take no notice of the progress."""
