"""What a page is sent of a run: its view, and what it draws as it is, in texts and tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from adaptive_eval.report.finding import counted_sentence, finding, model_verdicts
from adaptive_eval.report.published import published_text
from adaptive_eval.report.view import RunView
from adaptive_eval.show.details import cost_blocks, frontier_blocks, recipe_blocks, request_blocks, score_blocks
from adaptive_eval.show.labelled import label_blocks
from adaptive_eval.show.summary import further_costs
from adaptive_eval.show.text import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView(RunView):
    """A view for a page; without the rows of questions in `results`, which `posteriors` repeats."""

    finding: tuple[str, ...]
    """The finding in sentences; empty before the first look."""
    counted: str | None
    """Which answers the scores include, in a sentence; None if it is all that were asked."""
    verdicts: tuple[str, ...]
    """Comparisons of each model of `results.models` in words."""
    published: str
    """The configuration as YAML, to repeat the run."""
    blocks: Mapping[str, tuple[Block, ...]]
    """Paragraphs and tables of each section that has any."""


def page_view(view: RunView) -> PageView:
    """Add what a page draws as it is."""
    results = view.results
    blocks: dict[str, Iterable[Block]] = {"recipe": recipe_blocks(view), "traffic": request_blocks(view)}
    if results is not None:
        costs = further_costs(results.cost.grading, results.cost.beside)
        blocks["costs"] = [f"{label.capitalize()}: {text}." for label, text in costs]
        blocks["details"] = [*score_blocks(results), *cost_blocks(view, results)]
        blocks["frontier"] = frontier_blocks(results)
        blocks["labels"] = [*([] if view.orders is None else [view.orders]), *label_blocks(results)]
    carried = {field.name: getattr(view, field.name) for field in fields(RunView)}
    carried["results"] = None if results is None else replace(results, questions=())
    return PageView(
        **carried,
        finding=() if results is None else finding(results),
        counted=None if results is None else counted_sentence(results),
        verdicts=() if results is None else model_verdicts(results),
        published=published_text(view.configuration),
        blocks={section: tuple(parts) for section, parts in blocks.items()},
    )
