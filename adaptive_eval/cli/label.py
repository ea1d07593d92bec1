"""`adaptive-eval label RUN`: labels from people, on a page that shows answers one by one, or from a file."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.cli.shared import reported
from adaptive_eval.errors import ConfigError
from adaptive_eval.record.label_session import LabelSession
from adaptive_eval.record.labelled import labelled_run
from adaptive_eval.record.labels import (
    add_labels,
    label_fields,
    labels_in,
    labels_place,
    require_labels_say_something,
    require_levels,
)
from adaptive_eval.record.restore import opened_run
from adaptive_eval.show.labelled import label_sections
from adaptive_eval.show.text import without_markup
from adaptive_eval.store.address import require_directory


def label(
    run: Annotated[Path, typer.Argument(help="The directory of a run.", metavar="RUN")],
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Answers to label in this session.")] = 50,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Of the page; default: any that is free.")] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Take labels from a file: JSON lines or CSV, see the guide."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show what the labels say by now.")] = False,
) -> None:
    """Label answers of RUN one by one, blinded: the grader's error, and scores corrected for it.

    A page in a browser on this machine shows each with its question and the reference, and a key says what it is, until
    q or Ctrl-C; neither the model nor what the grader said is shown. Chosen are answers whose labels move open
    comparisons most. The labels lie in RUN/labels.jsonl; reports then have the grader's error, and scores corrected for
    it.
    """
    with reported(run):
        require_directory(run)
        if [port is not None, source is not None, show].count(True) > 1:
            raise ConfigError(
                "--port is of a page to label on, which --from and --show do without; give one of the three"
            )
        if not show:
            labels_place(run)  # whoever would label is told at once that nothing can be kept
        if source is not None:
            _take(run, source)
        elif not show:
            typer.echo("choosing the answers to label ...", err=True)
            _serve(LabelSession(run, number), port or 0)
        with opened_run(run) as stored:
            found = labelled_run(stored)
        said = "no answer has a label yet" if found is None else without_markup("\n\n".join(label_sections(found)))
        typer.echo(said)


def _take(run: Path, source: Path) -> None:
    """Labels of the user's own file."""
    with opened_run(run) as stored:
        fields = label_fields(stored.setup.config)
        require_labels_say_something(stored.setup.config, stored.rubric)
    labels = labels_in(source)
    require_levels(labels, fields, source)
    add_labels(run, labels)


def _serve(session: LabelSession, port: int) -> None:
    """A page, until it says that it is over."""
    # imported here: only this way of labelling needs it
    from adaptive_eval.show.serve.labelling import serve_labelling

    if session.current is None:
        typer.echo("every answer that a look has judged has a label")
        return
    told = "label at {}  q on the page or Ctrl-C ends it; whoever has the address can label"
    asyncio.run(serve_labelling(session, port, lambda url: typer.echo(told.format(url))))
