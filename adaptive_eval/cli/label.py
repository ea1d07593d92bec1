"""`adaptive-eval label RUN`: collect labels from people, on a page that shows answers one by one, or from a file."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import Run, report_errors
from adaptive_eval.labels.file import add_labels, parse_labels_file, require_levels, writable_labels_file
from adaptive_eval.labels.session import LabelSession
from adaptive_eval.record.finding import finding
from adaptive_eval.record.label_effect import require_useful_labels
from adaptive_eval.record.label_file import read_labels
from adaptive_eval.record.lines import several
from adaptive_eval.record.restore import open_run
from adaptive_eval.record.results import Results
from adaptive_eval.record.results_file import write_results
from adaptive_eval.show.labelled import label_sections
from adaptive_eval.show.text import markdown_cell, strip_markup
from adaptive_eval.store import is_held


def label(
    run: Run,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Answers to label in this session.")] = 50,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the page; default: any free one.")] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Take labels from a file: JSON lines or CSV, see the guide."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show what the labels say so far.")] = False,
) -> None:
    """Label answers of RUN blinded, to measure the grader's error and correct the scores for it.

    A page in a browser on this machine shows each answer with its question and the reference, but neither its model nor
    its grade. Each label is one key; q or Ctrl-C ends the session. Answers whose labels help open comparisons most come
    first. The labels are stored in RUN/labels.jsonl. From then on scores, order and verdicts are corrected by them, in
    every report and in results.json.
    """
    with report_errors(run):
        if [port is not None, source is not None, show].count(True) > 1:
            raise ConfigError("--port, --from and --show exclude each other; give one of them")
        if not show:
            writable_labels_file(run)  # fails before anybody labels in vain
        if source is not None:
            _import_labels(run, source)
        elif not show:
            typer.echo("choosing the answers to label ...", err=True)
            _serve_page(LabelSession(run, number), port or 0)
        typer.echo(strip_markup("\n\n".join(_findings(run, _apply_labels(run)))))


def _apply_labels(run: Path) -> Results | None:
    """The results by the labels that there are; results.json has them, too, unless the run goes on and writes it."""
    running = is_held(run)
    with open_run(run) as stored:
        results = stored.results(running=running)
        is_written = stored.published(rows=False) is not None or running or bool(stored.setup.config.plug_ins)
        if results is not None and not is_written:
            write_results(run, results)
        return results


def _findings(run: Path, results: Results | None) -> Iterator[str]:
    if results is None:
        yield "no look was taken yet: labels count from the first look on"
    elif results.labelled is not None:
        yield from (markdown_cell(sentence, 1000) for sentence in finding(results))
        yield from label_sections(results)
    elif labels := len(read_labels(run)):  # whoever reads a run loads no plug-ins
        has = "has" if labels == 1 else "have"
        yield f"{several(labels, 'answer')} {has} a label: results follow them from the next start of the run on"
    else:
        yield "no answer has a label yet"


def _import_labels(run: Path, source: Path) -> None:
    """Add labels from the user's own file."""
    with open_run(run) as stored:
        grader, questions = stored.setup.config.grader, stored.setup.roster.questions
        require_useful_labels(grader, stored.rubric)
    labels = parse_labels_file(source)
    require_levels(labels, grader, questions, source)
    add_labels(run, labels)


def _serve_page(session: LabelSession, port: int) -> None:
    """Serve the labelling page until it ends."""
    # imported here: only this way of labelling needs it
    from adaptive_eval.labels.site import serve_labelling

    if session.current is None:
        typer.echo("every answer that a look has judged has a label")
        return
    told = "label at {}  q on the page or Ctrl-C ends it; whoever has the address can label"
    asyncio.run(serve_labelling(session, port, lambda url: typer.echo(told.format(url))))
