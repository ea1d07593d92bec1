"""`adaptive-eval demo`: rank models by sampling, in a browser."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.files import real_path
from adaptive_eval.cli.shared import report_errors, write_text


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The file of the page.")] = Path("demo.html"),
    opened: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
) -> None:
    """Open a demonstration in a browser. It is a local page that needs no server or network.

    Choose the true scores of models, sample trial by trial, and watch posteriors, ranks and intervals. See how repeated
    looks without a correction mislead about two equal models.
    """
    with report_errors():
        from adaptive_eval.show.page.documents import demo_page

        if write_text(output, demo_page()) and opened:
            webbrowser.open(real_path(output).as_uri())
