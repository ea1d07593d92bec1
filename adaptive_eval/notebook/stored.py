"""A stored run for notebooks and programs: its results, and data frames for further analysis."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from adaptive_eval.base.imports import load_extra
from adaptive_eval.exchange.source import opened_source
from adaptive_eval.exchange.tables.writer import rows
from adaptive_eval.report import view as views
from adaptive_eval.report.results import ModelRow, PairRow, Results

NESTED = {"signals", "sampling"}
"""Fields of a model that are mappings, and so cannot be a table cell."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A stored run, whether or not it has ended."""

    directory: Path
    view: views.RunView
    """Everything except the trials."""

    @property
    def results(self) -> Results | None:
        """Content of results.json; None before the first look."""
        return self.view.results

    @property
    def ranking(self) -> Any:
        """The ranking as a `pandas.DataFrame`: one row per model, best first."""
        results = self.view.results
        return _frame([asdict(row) for row in (results.models if results else ())], columns=_names(ModelRow))

    @property
    def comparisons(self) -> Any:
        """The comparisons as a `pandas.DataFrame`, one row each."""
        results = self.view.results
        return _frame([asdict(row) for row in (results.pairs if results else ())], columns=_names(PairRow))

    def trials(self, *, texts: bool = False) -> Any:
        """The trials as a `pandas.DataFrame`, read from the disk at each call.

        Args:
            texts: Whether to include the model's output, `text` and `reasoning`.

        Returns:
            One row per trial, in the order of storing.

        Raises:
            ConfigError: pandas is not installed; install the extra `pandas`.
            StoreError: The run has no trials yet.
        """
        with opened_source(self.directory) as source:
            return _frame(list(rows(source, texts)))

    def __repr__(self) -> str:
        status = "before its first look" if self.view.results is None else self.view.results.run.status
        return f"<RunRecord {self.view.name!r} in {str(self.directory)!r}, {status}>"


def _frame(rows: list[Any], **options: Any) -> Any:
    return load_extra("pandas", "pandas", "data frames").DataFrame(rows, **options)


def _names(row: type[ModelRow] | type[PairRow]) -> list[str]:
    return [field.name for field in fields(row) if field.name not in NESTED]


def read_run(directory: str | Path) -> RunRecord:
    """Read a stored run; nothing named in it is executed.

    Args:
        directory: Directory of the run, such as `runs/my-benchmark`; the run may still be active.

    Returns:
        The run as stored now.

    Raises:
        StoreError: There is no run in the directory.

    Example:
        A run of the command as tables:

            record = adaptive_eval.read_run("runs/quickstart")
            print(record.ranking)
    """
    place = Path(directory)
    return RunRecord(place, views.read_view(place))
