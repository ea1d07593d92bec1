"""Tables as HTML for a notebook; names come from outside, so nothing that they hold becomes markup."""

from collections.abc import Iterable, Sequence
from html import escape

from adaptive_eval.record.lines import duration, safe_line
from adaptive_eval.record.results import ModelRow
from adaptive_eval.record.scale import Scale
from adaptive_eval.record.status import Status
from adaptive_eval.show.ranking import ranking_table
from adaptive_eval.show.text import count

SHOWN_MODELS = 100


def ranking_html(models: Sequence[ModelRow], scale: Scale, *, gated: bool) -> str:
    """The models from best to worst."""
    rows = ranking_table(((row, row.name, "") for row in models[:SHOWN_MODELS]), scale, gated=gated)
    head, *lines = (row[:-1] for row in rows)
    more = len(models) - SHOWN_MODELS
    return table_html(head, lines) + (paragraph_html(f"and {more} more") if more > 0 else "")


def table_html(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose cells are texts."""
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{_cells(headings, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def _cells(texts: Iterable[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(safe_line(text))}</{tag}>" for text in texts)


def paragraph_html(text: str) -> str:
    """A line of text."""
    return f"<p>{escape(safe_line(text, 1000))}</p>"


def progress_html(name: str, status: Status, scale: Scale, told: Sequence[str]) -> str:
    """A run that goes on: a bar, the ranking so far, and what happened last."""
    known = status.trials_to_go is not None
    most = f' value="{status.trials}" max="{status.trials + (status.trials_to_go or 0.0):.0f}"' if known else ""
    said = f"{name}: look {status.looks}, {count(status.trials)} trials, {duration(status.elapsed)}"
    models = [one.row for one in status.standings]
    ranking = ranking_html(models, scale, gated=bool(status.gate)) if models else ""
    return f"{paragraph_html(said)}<progress{most}></progress>{ranking}{''.join(map(paragraph_html, told))}"
