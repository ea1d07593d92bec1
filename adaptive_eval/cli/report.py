"""`adaptive-eval report RUN`: write a report of a run."""

from pathlib import Path
from typing import Annotated, Literal

import orjson
import typer

from adaptive_eval.base.files import write_atomic
from adaptive_eval.cli.shared import ANOTHER_OUTPUT, Run, report_errors, write_text
from adaptive_eval.report.question_rows import as_json
from adaptive_eval.report.view import RunView, read_view

Kind = Literal["html", "md", "pr", "summary", "json", "csv", "junit"]
SUFFIXES = {"junit": "xml", "pr": "md", "summary": "txt"}
FORMAT = "adaptive-eval.report/1"


def report(
    run: Run,
    kind: Annotated[Kind, typer.Option("--format", help="What to write.")] = "html",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file, or - for the terminal; default: report.* in RUN."),
    ] = None,
) -> None:
    """Write a report of RUN: HTML, Markdown, JSON, CSV or JUnit XML.

    RUN may be finished, stopped or in progress. Formats: html, one self-contained file; md, for a paper; pr, for a
    comment on a pull request; summary, text for an email; json, everything except the trials; csv, the ranking with one
    line per model; junit, the outcome of a gate (objective.gate) per model.
    """
    with report_errors():
        view = read_view(run, rows=kind == "json")
        text = _render(view, kind)
        if output is not None:
            write_text(output, text)
        else:
            path = run / f"report.{SUFFIXES.get(kind, kind)}"
            write_atomic(path, text.encode("utf-8", "replace"), ANOTHER_OUTPUT)
            typer.echo(str(path))


def _render(view: RunView, kind: Kind) -> str:
    match kind:
        case "html":
            from adaptive_eval.show.page.documents import report_page

            return report_page(view)
        case "md" | "pr" | "summary" | "csv":
            from adaptive_eval.show.markdown import markdown, pull_request, ranking_csv, summary

            return {"md": markdown, "pr": pull_request, "summary": summary, "csv": ranking_csv}[kind](view)
        case "junit":
            from adaptive_eval.show.junit import junit

            return junit(view)
        case "json":
            document = {"format": FORMAT, "run": view}
            return orjson.dumps(document, default=as_json, option=orjson.OPT_APPEND_NEWLINE).decode()
