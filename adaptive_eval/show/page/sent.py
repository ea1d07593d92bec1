"""What a page is sent of a run: its view, and what it draws as it is, in texts and tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from adaptive_eval.report.costs import allowed_in_words, unstored_answers
from adaptive_eval.report.findings import Findings, findings_of_view
from adaptive_eval.report.needs import trials_needed
from adaptive_eval.report.published import published_text
from adaptive_eval.report.status import standings
from adaptive_eval.report.view import RunView
from adaptive_eval.show.details import (
    comparison_blocks,
    cost_blocks,
    frontier_blocks,
    recipe_blocks,
    request_blocks,
    score_blocks,
)
from adaptive_eval.show.labelled import label_blocks
from adaptive_eval.show.text import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView(RunView):
    """A view for a page; without the rows of questions in `results`, which `posteriors` repeats."""

    findings: Findings
    allowed: str | None
    """How many trials were allowed, and which answers are not stored."""
    server_seconds: float | None
    """Server time that is paid for."""
    needed: tuple[float | None, ...]
    """Trials per question that each of `results.pairs` needs."""
    verdicts: tuple[str, ...]
    """Comparisons of each model of `results.models` in words."""
    published: str
    """The configuration as YAML, to repeat the run."""
    blocks: Mapping[str, tuple[Block, ...]]
    """Paragraphs and tables of each section that has any."""


def page_view(view: RunView) -> PageView:
    """Add what a page draws as it is."""
    results, found = view.results, findings_of_view(view)
    blocks: dict[str, Iterable[Block]] = {"recipe": recipe_blocks(view), "traffic": request_blocks(view)}
    blocks["costs"] = [f"{label.capitalize()}: {text}." for label, text in found.costs]
    if results is not None:
        blocks["details"] = [*score_blocks(results), *cost_blocks(view, results)]
        blocks["comparisons"] = comparison_blocks(results)
        blocks["frontier"] = frontier_blocks(results)
        blocks["labels"] = [*([] if view.orders is None else [view.orders]), *label_blocks(results)]
    carried = {field.name: getattr(view, field.name) for field in fields(RunView)}
    carried["results"] = None if results is None else replace(results, questions=())
    return PageView(
        **carried,
        findings=found,
        allowed=None
        if results is None
        else ", and ".join([allowed_in_words(results.cost), *unstored_answers(results.cost.beside)]),
        server_seconds=results.cost.server_seconds if results is not None and results.server_time_is_paid else None,
        needed=() if results is None else tuple(trials_needed(results, pair) for pair in results.pairs),
        verdicts=() if results is None else tuple(standing.verdict for standing in standings(results)),
        published=published_text(view.configuration),
        blocks={section: tuple(parts) for section, parts in blocks.items()},
    )
