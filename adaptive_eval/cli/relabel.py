"""`adaptive-eval relabel RUN`: a stored run under other rubrics."""

from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import Run, TextFile, TextKind, report_errors, write_document
from adaptive_eval.config.load import load_rubric
from adaptive_eval.config.prepare import stored_setup
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.record.relabel import Relabelling
from adaptive_eval.record.relabel import relabel as relabel_run
from adaptive_eval.record.restore import open_run
from adaptive_eval.show.relabelled import relabelled_markdown

FORMAT = "adaptive-eval.relabelling/1"


def relabel(
    run: Run,
    rubric: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A file with a `rubric:`, such as a configuration; may be given again."),
    ] = None,
    kind: TextKind = None,
    output: TextFile = None,
    plots: Annotated[
        Path | None, typer.Option(help="Also draw the changes of ranks into this folder, as SVG and PNG.")
    ] = None,
) -> None:
    """Show the scores, ranks and tiers of RUN under other rubrics: by default the paper's twelve schemata.

    Every rubric is applied to the stored signals; no server is called, and nothing in RUN is changed. To continue the
    run with another rubric: `adaptive-eval regrade RUN --config CONFIG`.
    """
    with report_errors(run):
        found = relabel_run(run, _rubrics(run, rubric) if rubric else None)
        drawn = [] if plots is None else _draw(found, plots)
        write_document(relabelled_markdown(found), {"format": FORMAT, "relabelling": found}, kind, output)
        for path in drawn:
            typer.echo(str(path), err=output is None)


def _rubrics(run: Path, files: list[Path]) -> dict[str, RubricConfig]:
    """The rubric of each file, by the name of the file."""
    with open_run(run) as stored:
        names = tuple(stored_setup(stored.reader.header()).roster.models)
    named = [path.stem for path in files]
    if len(set(named)) < len(named):
        named = [str(path) for path in files]
    if len(set(named)) < len(named):
        raise ConfigError("--rubric names a file twice; give each once")
    return {name: load_rubric(path, names) for name, path in zip(named, files, strict=True)}


def _draw(found: Relabelling, folder: Path) -> list[Path]:
    # imported here: it needs an extra
    from adaptive_eval.show.plots import draw_rubrics

    return draw_rubrics(found, folder)
