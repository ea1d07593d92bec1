"""A stored run for notebooks: a table to look at, and data frames for further analysis."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_eval.base.imports import load_extra
from adaptive_eval.base.roster import Names
from adaptive_eval.exchange.source import opened_source
from adaptive_eval.exchange.tables.writer import rows
from adaptive_eval.notebook.display import paragraph_html, ranking_html
from adaptive_eval.report import view as views
from adaptive_eval.report.lines import Scale
from adaptive_eval.report.results import ModelRow, PairRow, Results

NESTED = {"signals", "sampling"}
"""Fields of a model that are mappings, and so cannot be a table cell."""


class ModelAtLook(NamedTuple):
    """One model at one look: a row of the data frame `looks`."""

    look: int
    at: float
    model: str
    place: int
    tier: int
    trials: int
    score: float | None
    sigma: float | None


class Frames(NamedTuple):
    """The tables of a run as `pandas.DataFrame`."""

    trials: Any
    """One row per trial, in the order of storing: the columns of `adaptive-eval export`."""
    ranking: Any
    """One row per model, best first: the fields of `models` in results.json."""
    comparisons: Any
    """One row per comparison of the objective: the fields of `pairs` in results.json."""
    looks: Any
    """One row per look and model."""


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

    def to_pandas(self, *, texts: bool = False) -> Frames:
        """The run as data frames.

        Args:
            texts: Whether to include the model's output, `text` and `reasoning`.

        Returns:
            `trials`, `ranking`, `comparisons` and `looks`.

        Raises:
            ConfigError: pandas is not installed; install the extra `pandas`.
            StoreError: The run has no trials yet.
        """
        looks = _frame(list(self._looks()), columns=list(ModelAtLook._fields))
        return Frames(self.trials(texts=texts), self.ranking, self.comparisons, looks)

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

    def _looks(self) -> Iterator[ModelAtLook]:
        for look in self.view.looks:
            order = Names(look.order)
            models = zip(look.models, look.tiers, look.trials, look.scores, look.sigmas, strict=True)
            for name, tier, trials, score, sigma in models:
                place = order.position(name) + 1
                yield ModelAtLook(look.look, look.at, name, place, tier, trials, score, sigma)

    def _repr_html_(self) -> str:
        """The ranking, as a notebook shows it."""
        results = self.view.results
        if results is None:
            return paragraph_html(f"{self.view.name}: no look has been taken yet")
        reason = "" if results.run.reason is None else f" ({results.run.reason.replace('_', ' ')})"
        sizes = f"{results.cost.trials} trials, {len(results.looks)} looks"
        headline = f"{self.view.name}: {results.run.status}{reason}, {sizes}"
        lines = (f"{warning.model or 'warning'}: {warning.text}" for warning in results.warnings)
        warnings = "".join(map(paragraph_html, lines))
        ranking = ranking_html(results.models, Scale.of(results.weights), gated=bool(results.gate))
        return paragraph_html(headline) + ranking + warnings

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
            frames = record.to_pandas()
    """
    place = Path(directory)
    return RunRecord(place, views.read_view(place))
