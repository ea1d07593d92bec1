"""The formats by name, and how one is written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from adaptive_eval.errors import ConfigError
from adaptive_eval.exchange.arrays import write_npz
from adaptive_eval.exchange.inspect.writer import ENDING, write_logs
from adaptive_eval.exchange.source import ExportSource, OnProgress, opened_source
from adaptive_eval.exchange.tables.writer import write_csv, write_jsonl, write_parquet, write_signals
from adaptive_eval.files import new_file, new_folder

Format = Literal["npz", "csv", "jsonl", "parquet", "inspect", "scorio"]
FORMATS: tuple[Format, ...] = get_args(Format)
PLACES: dict[Format, str] = {
    "npz": "tensor.npz",
    "csv": "trials.csv",
    "jsonl": "trials.jsonl",
    "parquet": "trials.parquet",
    "inspect": "inspect",
    "scorio": "signals.jsonl",
}
"""Where an export lies in the run directory, unless it is told otherwise."""
TEXTS: dict[Format, bool] = {"csv": False, "jsonl": True, "parquet": True}
"""Formats in which what the models wrote may be left out or put in, and what they do without being asked."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What is wanted."""

    directory: Path
    format: Format
    output: Path | None = None
    force: bool = False
    texts: bool | None = None
    """None: as is usual for the format."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What came of it."""

    path: Path
    trials: int
    models: int
    untried: int
    """Questions that a model has no trial of, over all models."""
    ragged: bool
    """Whether some questions have more trials than others."""


def export(request: ExportRequest, on_progress: OnProgress | None = None) -> Exported:
    """Write a run in a format; raises `ConfigError` and `StoreError`, and then has written nothing."""
    path = request.output or request.directory / PLACES[request.format]
    if request.texts is not None and request.format not in TEXTS:
        raise ConfigError(
            f"--text and --no-text are for {', '.join(TEXTS)}, but the format is {request.format}; leave them out"
        )
    with opened_source(request.directory) as source:
        if request.format == "inspect":
            with new_folder(path, request.force, ENDING) as draft:
                write_logs(source, draft, on_progress or _tell_nobody)
        else:
            with new_file(path, request.force) as draft:
                _write(source, draft, request, on_progress or _tell_nobody)
        return Exported(
            path=path,
            trials=source.reader.trial_count(),
            models=len(source.models),
            untried=int(np.count_nonzero(source.extent == 0)),
            ragged=bool(np.ptp(source.extent)),
        )


def _write(source: ExportSource, path: Path, request: ExportRequest, on_progress: OnProgress) -> None:
    texts = TEXTS.get(request.format, False) if request.texts is None else request.texts
    match request.format:
        case "npz":
            write_npz(source, path, on_progress)
        case "csv":
            write_csv(source, path, texts, on_progress)
        case "jsonl":
            write_jsonl(source, path, texts, on_progress)
        case "parquet":
            write_parquet(source, path, texts, on_progress)
        case _:
            write_signals(source, path, on_progress)


def _tell_nobody(trials: int) -> None:
    """Nobody listens."""
