"""`adaptive-eval label RUN`: collect labels from people, on a page that shows answers one by one, or from a file."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import Run, report_errors
from adaptive_eval.labels.effect import labelled_run
from adaptive_eval.labels.file import (
    add_labels,
    label_fields,
    parse_labels_file,
    require_levels,
    require_useful_labels,
    writable_labels_file,
)
from adaptive_eval.labels.session import LabelSession
from adaptive_eval.record.restore import open_run
from adaptive_eval.show.labelled import label_sections
from adaptive_eval.show.text import strip_markup


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
    first. The labels are stored in RUN/labels.jsonl; reports then have the grader's error, and scores corrected for it.
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
        with open_run(run) as stored:
            found = labelled_run(stored)
        said = "no answer has a label yet" if found is None else strip_markup("\n\n".join(label_sections(found)))
        typer.echo(said)


def _import_labels(run: Path, source: Path) -> None:
    """Add labels from the user's own file."""
    with open_run(run) as stored:
        fields = label_fields(stored.setup.config)
        require_useful_labels(stored.setup.config, stored.rubric)
    labels = parse_labels_file(source)
    require_levels(labels, fields, source)
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
