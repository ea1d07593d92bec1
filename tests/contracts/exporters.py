"""Contract of an exporter: the file has the trials of the run, all of them and no others, or there is no file."""

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from adaptive_eval.exchange.export import ExportFormat
from adaptive_eval.exchange.source import ExportSource, opened_source
from adaptive_eval.testing.runs import fail_unless
from contracts.elsewhere import check_elsewhere
from contracts.stored import made_up_rows, run_with_gaps, stored_run

Trial = tuple[str, str, int, int | None]
"""Model, question, number and category; None where nobody could grade it."""
NAMES = {
    "ada": 'org/ada "7b", v2',
    "bob": 'ORG/ada "7b", v2',
    "cyd": f"org/{'c' * 60}-step-1000",
    "dan": f"org/{'c' * 60}-step-2000",
    "q1": 'q, "1"\nand more',
    "q2": "=1+1",
    "q3": "\u0432\u043e\u043f\u0440\u043e\u0441",
}
"""Names that have to be written with care, and some that differ in their case or their ends alone."""
NEXT_DAY = 86_400.0


def check_exporter(form: ExportFormat, read: Callable[[Path], Iterable[Trial]], ungraded: bool = True) -> None:
    """Raise AssertionError unless the exporter keeps to its contract.

    Args:
        form: The format, as in the list of exports.
        read: Gives the trials in a file of the format: model, question, trial and category.
        ungraded: Trials without a grade are among them.

    Raises:
        AssertionError: It does not; the message says what is broken, and for which trial.

    Example:
        The tables that `export --format csv` writes, read by `read_csv`, a function of your own:

            check_exporter(EXPORTS["csv"], read_csv)
    """
    rows = [{**row, "model": _named(row["model"]), "question": _named(row["question"])} for row in made_up_rows()]
    fail_unless(Path(form.place).name == form.place, f"its place must be a plain name, but is {form.place!r}")
    with stored_run(rows) as directory, opened_source(directory) as source:
        folder = directory.parent / "exports"
        folder.mkdir()
        first, again = folder / f"first-{form.place}", folder / f"again-{form.place}"
        _check_trials(form, read, source, first, ungraded, "the file")
        with patch("time.time", lambda now=time.time: now() + NEXT_DAY):
            _written(form, source, again)
        fail_unless(_content(first) == _content(again), f"{form.place}: the same run gives another file each time")
        fail_unless({*folder.iterdir()} == {first, again}, f"{form.place}: something is written beside its path")
        _check_failure(form, source, folder / f"cut-{form.place}")
    with run_with_gaps() as directory, opened_source(directory) as source:
        _check_trials(form, read, source, directory.parent / form.place, ungraded, "of a run with gaps the file")
    check_elsewhere(_in_file, (form, read), form.place)


def _in_file(form: ExportFormat, read: Callable[[Path], Iterable[Trial]]) -> str:
    """The trials in the order in which the file has them."""
    with stored_run() as directory, opened_source(directory) as source:
        path = directory.parent / form.place
        _written(form, source, path)
        return repr(_read_back(form, read, path))


def _check_trials(
    form: ExportFormat,
    read: Callable[[Path], Iterable[Trial]],
    source: ExportSource,
    path: Path,
    ungraded: bool,
    what: str,
) -> None:
    """The file has the trials that are stored, under their numbers, each once."""
    expected = {
        (trial.model, trial.question, trial.trial, trial.category)
        for trial in source.reader.trials()
        if ungraded or trial.category is not None
    }
    _check_progress(_written(form, source, path), source.reader.trial_count())
    counts = Counter(_read_back(form, read, path))
    for verb, many in (
        ("lacks", expected - counts.keys()),
        ("makes up", counts.keys() - expected),
        ("repeats", [trial for trial, times in counts.items() if times > 1]),
    ):
        fail_unless(not many, f"{form.place}: {what} {verb} {len(many)} trials, such as {sorted(many, key=str)[:1]}")


def _read_back(form: ExportFormat, read: Callable[[Path], Iterable[Trial]], path: Path) -> list[Trial]:
    try:
        return list(read(path))
    except Exception as error:  # of the author's own function
        raise AssertionError(
            f"{form.place}: the function that reads the file back raises {error!r:.200}; the names in it are "
            f"{sorted(NAMES.values())!r}"
        ) from error


def _named(name: object) -> str:
    return NAMES.get(str(name), str(name))


def _written(form: ExportFormat, source: ExportSource, path: Path) -> list[int]:
    if form.ending is not None:
        path.mkdir()
    progress: list[int] = []
    form.write(source, path, bool(form.texts), progress.append)
    fail_unless(path.exists(), f"{form.place}: nothing is written to the path that is given")
    return progress


def _content(path: Path) -> list[tuple[str, bytes]]:
    """Bytes of a file; for a folder the names of its files, since logs of other tools bear dates."""
    if path.is_dir():
        return sorted((file.name, b"") for file in path.iterdir())
    return [("", path.read_bytes())]


def _check_progress(progress: list[int], trials: int) -> None:
    fail_unless(
        bool(progress) and progress == sorted(progress),
        f"progress must be told, and only grow, but it was {progress[:9]}",
    )
    fail_unless(progress[-1] == trials, f"in the end progress must be all {trials} trials, but it is {progress[-1]}")


def _check_failure(form: ExportFormat, source: ExportSource, path: Path) -> None:
    """Check that an error while trials are read ends the export: a part of them must not pass for all."""
    run = copy.copy(source.run)
    run.reader = _Failing(source.reader)  # type: ignore[assignment]
    try:
        _written(form, replace(source, run=run), path)
    except OSError as error:
        fail_unless(error.strerror == BROKEN, f"{form.place}: another error than that of the disk: {error}")
    else:
        raise AssertionError(f"{form.place}: a run that cannot be read to its end is written as if that were all of it")


BROKEN = "the disk fails"


class _Failing:
    """Reads the first trial, and then fails."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._reader, name)
        rows = ("trials", "model_trials", "graded_trials", "trial_facts", "cell")
        return self._cut_off(method) if name in rows else method

    def _cut_off(self, method: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
        def first(*arguments: Any) -> Iterator[Any]:
            yield from list(method(*arguments))[:1]
            raise OSError(5, BROKEN)

        return first
