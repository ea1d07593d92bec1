"""The export formats by name, and the export itself."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.files import new_export, real_path
from adaptive_eval.exchange.recording import write_npz
from adaptive_eval.exchange.source import ExportSource, OnProgress, opened_source
from adaptive_eval.exchange.tables.writer import write_csv, write_jsonl, write_parquet
from adaptive_eval.report.needs import void_models
from scorio.moments import IntArray


class ExportFormat(NamedTuple):
    """An export format, with its file names and its writer."""

    place: str
    """Default name of the export in the run directory."""
    write: Callable[[ExportSource, Path, bool, OnProgress], IntArray | None]
    """Writes the run to a path, with or without the models' texts, and reports the number of trials written.

    Returns the number of outcomes (L, M) if it has no place for other trials.
    """
    texts: bool | None = None
    """Whether the models' texts are written by default; None if there is no choice."""


EXPORTS: dict[str, ExportFormat] = {
    "npz": ExportFormat("tensor.npz", lambda source, path, _, on_progress: write_npz(source, path, on_progress)),
    "csv": ExportFormat("trials.csv", write_csv, texts=False),
    "jsonl": ExportFormat("trials.jsonl", write_jsonl, texts=True),
    "parquet": ExportFormat("trials.parquet", write_parquet, texts=True),
}
"""Every export format by name."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The counts of an export."""

    path: Path
    trials: int
    models: int
    removed: tuple[str, ...]
    """Those of the models that have left the run."""
    missing: int
    """Number of trials that the format has no place for: failures, and answers without a grade."""
    untried: int
    """Number of pairs of a model and a question of which it has no trial."""
    repeating: tuple[str, ...]
    """Models whose answers come back word for word, if it lacks the texts that show it."""


def export(
    directory: Path,
    format_name: str,
    output: Path | None = None,
    *,
    force: bool = False,
    texts: bool | None = None,
    on_progress: OnProgress = lambda trials: None,
) -> ExportResult:
    """Write a run in a format; if it raises `ConfigError` or `StoreError`, nothing was written.

    `texts`: whether to write the models' texts; None for the default of the format.
    """
    export_format = EXPORTS[format_name]
    path = output or directory / export_format.place
    if texts is not None and export_format.texts is None:
        choices = ", ".join(name for name, other in EXPORTS.items() if other.texts is not None)
        raise ConfigError(f"--text and --no-text are for {choices}, but the format is {format_name}; leave them out")
    if path == Path("-"):
        raise ConfigError("an export cannot be written to standard output; give a file as --output")
    with_texts = bool(export_format.texts if texts is None else texts)
    with opened_source(directory) as source:
        with new_export(path if output is None else real_path(path), force) as draft:  # a link in a run is replaced
            outcomes = export_format.write(source, draft, with_texts, on_progress)
        trials = source.reader.trial_count()
        results = None if with_texts else source.run.results(running=False, rows=False, sums=False)
        return ExportResult(
            path=path,
            trials=trials,
            models=len(source.models),
            removed=tuple(name for name in source.models if source.model(name) is None),
            missing=0 if outcomes is None else trials - int(outcomes.sum()),
            repeating=() if results is None else tuple(void_models(results)),
            untried=int(np.count_nonzero((source.extent if outcomes is None else outcomes) == 0)),
        )
