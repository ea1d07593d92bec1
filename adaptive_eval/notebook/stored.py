"""A stored run as a notebook wants it: a table to look at, and data frames to go on with."""

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
"""Fields of a model that are mappings, and so no cell of a table."""


class LookLine(NamedTuple):
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
    """One row a trial, in the order in which they were stored: the columns of `adaptive-eval export`."""
    ranking: Any
    """One row a model, best first: the fields of `models` in results.json."""
    comparisons: Any
    """One row a comparison of the objective: the fields of `pairs` in results.json."""
    looks: Any
    """One row for each look and model."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as it is stored, whether or not it has ended."""

    directory: Path
    view: views.RunView
    """Everything but the trials."""

    @property
    def results(self) -> Results | None:
        """Content of results.json; None before the first look."""
        return self.view.results

    def to_pandas(self, *, texts: bool = False) -> Frames:
        """The run as data frames.

        Args:
            texts: Whether the trials have what the model wrote, `text` and `reasoning`.

        Returns:
            `trials`, `ranking`, `comparisons` and `looks`.

        Raises:
            ConfigError: pandas is not installed, as by the extra `pandas`.
            StoreError: The run has no trials yet.
        """
        frame = load_extra("pandas", "pandas", "data frames").DataFrame
        found = self.view.results
        with opened_source(self.directory) as source:
            trials = frame(list(rows(source, texts)))
        ranking = () if found is None else found.models
        pairs = () if found is None else found.pairs
        return Frames(
            trials,
            frame([asdict(row) for row in ranking], columns=_names(ModelRow)),
            frame([asdict(row) for row in pairs], columns=_names(PairRow)),
            frame(list(self._looks()), columns=list(LookLine._fields)),
        )

    def _looks(self) -> Iterator[LookLine]:
        for look in self.view.looks:
            order = Names(look.order)
            each = zip(look.models, look.tiers, look.trials, look.scores, look.sigmas, strict=True)
            for name, tier, trials, score, sigma in each:
                place = order.position(name) + 1
                yield LookLine(look.look, look.at, name, place, tier, trials, score, sigma)

    def _repr_html_(self) -> str:
        """The ranking, as a notebook shows it."""
        found = self.view.results
        if found is None:
            return paragraph_html(f"{self.view.name}: no look has been taken yet")
        ended = "" if found.run.reason is None else f" ({found.run.reason.replace('_', ' ')})"
        said = f"{self.view.name}: {found.run.status}{ended}, {found.cost.trials} trials, {len(found.looks)} looks"
        warnings = "".join(paragraph_html(f"{one.model or 'warning'}: {one.text}") for one in found.warnings)
        ranking = ranking_html(found.models, Scale.of(found.weights), gated=bool(found.gate))
        return paragraph_html(said) + ranking + warnings

    def __repr__(self) -> str:
        status = "before its first look" if self.view.results is None else self.view.results.run.status
        return f"<RunRecord {self.view.name!r} in {str(self.directory)!r}, {status}>"


def _names(row: type[ModelRow] | type[PairRow]) -> list[str]:
    return [field.name for field in fields(row) if field.name not in NESTED]


def read_run(directory: str | Path) -> RunRecord:
    """A stored run; nothing that it names is executed.

    Args:
        directory: Where the run lies, such as `runs/my-benchmark`; it may be going on.

    Returns:
        The run as it is stored now.

    Raises:
        StoreError: There is no run.

    Example:
        What the command has stored, as tables:

            record = adaptive_eval.read_run("runs/quickstart")
            frames = record.to_pandas()
    """
    place = Path(directory)
    return RunRecord(place, views.read_view(place))
