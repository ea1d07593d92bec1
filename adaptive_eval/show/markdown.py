"""A run as Markdown, for a paper's appendix or a pull request: findings, method, and how to reproduce them."""

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from textwrap import shorten

import numpy as np
import scipy

from adaptive_eval import __version__
from adaptive_eval.exchange.tables.writer import csv_text
from adaptive_eval.questions.benchmark import INSPECT_LOGS
from adaptive_eval.report.finding import has_tiers
from adaptive_eval.report.findings import Findings, findings_of_view
from adaptive_eval.report.lines import Scale, minute, safe_line, several
from adaptive_eval.report.needs import UNDECIDED
from adaptive_eval.report.next_steps import Advice
from adaptive_eval.report.published import published_text
from adaptive_eval.report.results import ModelRow, Results
from adaptive_eval.report.status import standings
from adaptive_eval.report.view import RunView
from adaptive_eval.show.details import (
    batch_blocks,
    comparison_blocks,
    cost_blocks,
    frontier_blocks,
    group_table,
    recipe_blocks,
    score_blocks,
)
from adaptive_eval.show.labelled import label_blocks
from adaptive_eval.show.ranking import model_remark, ranking_table
from adaptive_eval.show.summary import pending_in_short, read_answers, screen, step_lines
from adaptive_eval.show.text import (
    fenced_block,
    markdown_blocks,
    markdown_cell,
    markdown_table,
)

NESTED_FIELDS = ("signals", "sampling", "grading")
"""Fields with values of their own, which become columns."""
GRADING = ("answers", "tokens", "usd", "gpu_seconds")


def ranking_csv(view: RunView) -> str:
    """Write everything about the models in results.json as CSV."""
    models = () if view.results is None else view.results.models
    columns = [field.name for field in fields(ModelRow) if field.name not in NESTED_FIELDS]
    signals = sorted({signal for row in models for signal in row.signals})
    settings = list(dict.fromkeys(setting for row in models for setting in row.sampling))
    grading = GRADING if any(row.grading is not None for row in models) else ()
    rows = (
        [
            *(getattr(row, name) for name in columns),
            *(getattr(row.grading, name, None) for name in grading),
            *(row.signals.get(signal, 0) for signal in signals),
            *map(row.sampling.get, settings),
        ]
        for row in models
    )
    return csv_text([*columns, *(f"grading_{name}" for name in grading), *signals, *settings], rows)


SHOWN_EVENTS = 30
MAX_PULL_REQUEST_MODELS = 6
"""Rows of the ranking in a comment on a pull request."""


def summary(view: RunView) -> str:
    """Render findings and costs as plain text for an email."""
    found = findings_of_view(view)
    steps = [*found.steps, *([] if view.results is None else [read_answers(view.place)])]
    pending = pending_in_short(view.batches)
    waiting = [] if pending is None else [f"pending   {pending}"]
    lines = [safe_line(view.name), "", *screen(found, view.results), *waiting, *step_lines(steps)]
    return "\n".join(lines) + "\n"


def _step_paragraphs(steps: Iterable[Advice], begin: str = "Next: ") -> Iterator[str]:
    """Render each step, with its command as code."""
    for at, step in enumerate(steps):
        yield markdown_cell(f"{'' if at else begin}{step.text}", 1000)
        if step.command is not None:
            yield fenced_block(step.command, "sh")


def pull_request(view: RunView) -> str:
    """Render verdict, scores and cost in a few lines, for a comment on a pull request."""
    found, results = findings_of_view(view), view.results
    paragraphs = list(_headline(found)) if results else [f"**{markdown_cell(view.name)}**", *_headline(found)]
    further = 0
    if results is not None:
        shown = replace(results, models=results.models[:MAX_PULL_REQUEST_MODELS])
        further = len(results.models) - len(shown.models)
        if any(row.gate for row in results.groups):
            tables = [group_table(shown, by) for by in dict.fromkeys(row.by for row in shown.groups)]
            paragraphs += [markdown_table(table.head, table.rows) for table in tables]
        paragraphs.append(_ranking(shown))
    more = f"{several(further, 'more model')} in the report." if further > 0 else ""
    paragraphs += filter(None, [" ".join(filter(None, [*_cost(found), more]))])
    if results is None or results.run.reason is None or any(pair.verdict in UNDECIDED for pair in results.pairs):
        paragraphs += _step_paragraphs(found.steps)
    paragraphs += _promise(found)
    if results is not None and results.warnings:
        first = results.warnings[0]
        text = shorten(first.text if first.model is None else f"{first.model}: {first.text}", 400, placeholder=" …")
        paragraphs.append(
            f"{several(len(results.warnings), 'warning')} in the report, the first: {markdown_cell(text, 400)}"
        )
    return "\n\n".join(paragraphs) + "\n"


def markdown(view: RunView) -> str:
    """Render the whole report."""
    parts = [f"# {markdown_cell(view.name)}", *_findings(view), *_graders(view), *_how(view), *_repeat(view)]
    return "\n\n".join(parts) + "\n"


# -- findings --------------------------------------------------------------------------------------------------------


def _findings(view: RunView) -> Iterator[str]:
    found, results = findings_of_view(view), view.results
    yield from _headline(found)
    if results is not None:
        yield _ranking(results)
        yield from markdown_blocks(frontier_blocks(results))
    yield from filter(None, [" ".join([*_cost(found), *_written(results)])])
    if results is None:  # else a table says it
        yield from (markdown_cell(f"{label.capitalize()}: {text}.", 1000) for label, text in found.costs)
        yield from markdown_blocks(batch_blocks(view))
    yield from _promise(found)
    yield from _step_paragraphs(found.steps)
    if results is not None:
        yield from _step_paragraphs([read_answers(view.place)], "To ")
        yield from _warnings(results)
        yield "## Cost"
        yield from markdown_blocks([*cost_blocks(view, results), *batch_blocks(view)])
        yield "## Details"
        yield from markdown_blocks([*score_blocks(results), *comparison_blocks(results)])


def _headline(found: Findings) -> Iterator[str]:
    yield from (f"**{markdown_cell(sentence, 1000)}**" for sentence in found.headline)
    if found.ended is not None:
        yield markdown_cell(found.ended.replace("\n", "; "), 1000)


def _cost(found: Findings) -> Iterator[str]:
    """Decisions and their cost in sentences."""
    if found.decided:
        yield f"{found.decided}."
    if found.cost:
        yield f"Cost: {markdown_cell(found.cost, 1000)}."
    if found.counted is not None:
        yield found.counted


def _written(results: Results | None) -> list[str]:
    """The status of the run, and when and by which version its results were written."""
    if results is None:
        return []
    run = results.run
    return [f"({markdown_cell(f'{run.status}; adaptive-eval {run.version}, {run.updated}')})"]


def _promise(found: Findings) -> list[str]:
    return [] if found.promise is None else [f"Promise: {found.promise}."]


def _ranking(results: Results) -> str:
    scale, without_tiers = Scale.of(results.weights), not has_tiers(results)
    ranked = ((standing.row, standing.verdict) for standing in standings(results))
    rows = ((row, row.name + model_remark(row), verdict) for row, verdict in ranked)
    head, *lines = ranking_table(rows, scale, without_tiers=without_tiers)
    return markdown_table(head, lines, left_columns=2 - without_tiers, last=True)


def _warnings(results: Results) -> Iterator[str]:
    if results.warnings:
        yield "## Warnings"
        lines = ((warning.model, warning.text) for warning in results.warnings)
        yield "\n".join(
            f"- {'' if model is None else markdown_cell(model) + ': '}{markdown_cell(text, 1000)}"
            for model, text in lines
        )


def _graders(view: RunView) -> Iterator[str]:
    if view.orders is not None:
        yield "## Order of the two answers"
        yield view.orders
    if view.results is not None and view.results.labelled is not None:
        yield "## Labels"
        yield from markdown_blocks(label_blocks(view.results))


# -- method ----------------------------------------------------------------------------------------------------------


def _how(view: RunView) -> Iterator[str]:
    words = view.words
    yield "## How"
    sentences = [
        words.objective,
        words.rule,
        words.promise,
        words.allocation,
        words.prior,
        words.seeds,
    ]
    sentences += [markdown_cell(sentence, 1000) for sentence in view.by_trial]
    if view.thresholds is not None:
        sentences.append(markdown_cell(view.thresholds))
    yield "\n".join(f"- {sentence}" for sentence in filter(None, sentences))
    if any(row.replica.startswith(f"{INSPECT_LOGS}/") for row in view.traffic):
        yield "## Transcripts"
        yield (
            "They are in Inspect's logs, one per model and start of the run. To view them, in the run's directory: "
            f"`inspect view --log-dir {INSPECT_LOGS}`."
        )


# -- reproduction ----------------------------------------------------------------------------------------------------


def _repeat(view: RunView) -> Iterator[str]:
    yield "## Reproduce it"
    yield from markdown_blocks(recipe_blocks(view))
    yield (
        f"{len(view.questions)} questions, SHA-256 of ids, prompts and answers `{questions_digest(view)}`. "
        f"This report was written by adaptive-eval {__version__}, Python {platform.python_version()}, numpy "
        f"{np.__version__}, scipy {scipy.__version__}. The configuration, without settings at the defaults of "
        f"adaptive-eval {__version__}:"
    )
    yield fenced_block(published_text(view.configuration), "yaml")
    if events := [(minute(event.at), event.text) for event in view.events if event.text is not None]:
        yield "Events:"
        yield "\n".join(f"- {at} {markdown_cell(text, 500)}" for at, text in events[-SHOWN_EVENTS:])


def questions_digest(view: RunView) -> str:
    """Digest of questions and answer keys, regardless of their order."""
    rows = sorted([asked.id, asked.prompt, asked.answer, list(asked.choices)] for asked in view.questions)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()
