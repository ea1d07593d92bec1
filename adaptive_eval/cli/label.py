"""`adaptive-eval label RUN`: collect labels from people, on a page that shows answers one by one, or from a file."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import Run, report_errors
from adaptive_eval.labels.file import (
    add_labels,
    labels_of_answers,
    lock_labels,
    parse_labels_file,
    require_levels,
)
from adaptive_eval.labels.session import LabelSession
from adaptive_eval.report.finding import finding
from adaptive_eval.report.label_effect import require_useful_labels
from adaptive_eval.report.label_file import read_labels
from adaptive_eval.report.lines import safe_line, several
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import Results
from adaptive_eval.report.stored import open_run
from adaptive_eval.running.reporting import apply_labels
from adaptive_eval.show.labelled import label_blocks
from adaptive_eval.show.text import Block, as_text
from adaptive_eval.store.lock import is_held


def label(
    run: Run,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Answers to label in this session.")] = 50,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the page; default: any free one.")] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Read labels from a file: JSON lines or CSV, see the guide."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show the results of the labels so far.")] = False,
) -> None:
    """Label answers of RUN, to measure the grader's error. Scores are then corrected for it.

    A page in a browser shows each answer with its question and the answer key, but not its model or grade. One key sets
    a label; q or Ctrl-C ends the session. A model's answers come in random order. Once every model has 20 labels,
    models in undecided comparisons come first. The labels are stored in RUN/labels.jsonl; scores, order and verdicts
    are then corrected by them in all reports and results.json.
    """
    with report_errors():
        if [port is not None, source is not None, show].count(True) > 1:
            raise ConfigError("--port, --from and --show exclude each other; give one of them")
        RunReader.open(run).close()
        with nullcontext() if show else closing(lock_labels(run)):  # fail before anybody labels in vain
            if source is not None:
                _import_labels(run, source)
            elif not show:
                typer.echo("choosing the answers to label ...", err=True)
                _serve_page(LabelSession(run, number), port or 0)
            typer.echo(as_text(_findings(run, _results_by_labels(run))))


def _results_by_labels(run: Path) -> Results | None:
    """The results with the current labels."""
    apply_labels(run)
    with open_run(run) as stored:
        return stored.results(running=is_held(run), rows=False)


def _findings(run: Path, results: Results | None) -> Iterator[Block]:
    if results is None:
        yield "no look yet: labels count from the first look on"
    elif results.labelled is not None:
        yield from finding(results)
        yield from label_blocks(results)
    elif labels := len(read_labels(run)):  # readers of a run load no plug-ins
        when = "next look" if is_held(run) else "next start"
        yield f"{several(labels, 'label')} stored; the run uses them from its {when} on"
    else:
        yield "no answer has a label yet"


def _import_labels(run: Path, source: Path) -> None:
    """Add labels from a file."""
    with open_run(run) as stored:
        grader, questions = stored.setup.config.grader, stored.setup.roster.questions
        require_useful_labels(grader, stored.rubric)
        lines = parse_labels_file(source)
        labels = dict(lines)
        require_levels(labels, grader, questions, source)
        known = labels_of_answers(labels, stored.reader)
    if missing := [at for at in labels if at not in known]:
        at = missing[0]
        what = f"{several(len(missing), 'label')} of answers that {run} does not have"
        left_out = f"{what}, such as {safe_line(at.model)}, {safe_line(at.question)}, trial {at.trial}"
        if not known:
            raise ConfigError(f"{source} has only {left_out}")
        typer.echo(f"left out: {left_out}")
    if not labels:
        typer.echo(f"{source} has no labels: none were added")
        return
    earlier, in_file = read_labels(run), Counter(at for at, _ in lines)
    replaced = sum(at in earlier or in_file[at] > 1 for at in known)
    add_labels(run, known)
    of_same = f"; {several(replaced, 'earlier label')} of the same answer{'s' * (replaced > 1)} replaced"
    added = f"{several(len(known), 'label')} added{of_same if replaced else ''}"
    typer.echo(added, err=True)  # what is found comes first on standard output


def _serve_page(session: LabelSession, port: int) -> None:
    """Serve the labelling page until it ends."""
    # imported here: only this way of labelling needs it
    from adaptive_eval.labels.site import serve_labelling

    if session.current is None:
        typer.echo("no answers are left to label")
        return
    message = "label at {}  q on the page or Ctrl-C ends it; anyone with this address can label"
    asyncio.run(serve_labelling(session, port, lambda url: typer.echo(message.format(url))))
