"""The section `report` of the configuration: what reports show."""

from typing import Annotated

from pydantic import AfterValidator, Field

from adaptive_eval.config.metrics import NAMES, read_metric
from adaptive_eval.sections import Section, refuse


def _is_metric(name: str) -> str:
    if read_metric(name) is None:
        raise refuse("must be a metric", f"write it as {NAMES}")
    return name


class ReportConfig(Section):
    """Contents of reports besides the ranking."""

    metrics: tuple[Annotated[str, Field(max_length=40), AfterValidator(_is_metric)], ...] = ()
    """Metrics of k draws, for rubrics of two categories: pass@8, pass^4, maj@5, g-pass@4, g-pass@4:0.5, mg-pass@4."""
    by: tuple[str, ...] = ()
    """Fields of the questions' metadata, such as topic or level, by which scores are broken down."""
