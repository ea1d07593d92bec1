"""`adaptive-eval rescore RUN`: scores of a stored run under other rubrics."""

from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import Run, TextFile, TextKind, report_errors, write_document
from adaptive_eval.config.load import load_rubric
from adaptive_eval.config.prepare import stored_setup
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.report.rescore import rescore as rescore_run
from adaptive_eval.report.stored import open_run
from adaptive_eval.show.rescored import rubric_blocks

FORMAT = "adaptive-eval.rescoring/1"


def rescore(
    run: Run,
    rubric: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A file with a `rubric:`, such as a configuration; may be repeated."),
    ] = None,
    kind: TextKind = None,
    output: TextFile = None,
) -> None:
    """Show scores and ranks of RUN under other rubrics. By default these are the paper's twelve schemata.

    The rubrics are applied to the stored signals; no server is asked, and RUN is unchanged. To continue the run with
    another rubric: `adaptive-eval regrade RUN --config CONFIG`.
    """
    with report_errors():
        rescoring = rescore_run(run, _rubrics(run, rubric) if rubric else None)
        title, plain = f"{rescoring.run} under other rubrics", {"format": FORMAT, "rescoring": rescoring}
        write_document(title, rubric_blocks(rescoring), plain, kind, output)


def _rubrics(run: Path, files: list[Path]) -> dict[str, RubricConfig]:
    """The rubric of each file, by the name of the file."""
    with open_run(run) as stored:
        models = tuple(stored_setup(stored.reader.header()).roster.models)
    names = [path.stem for path in files]
    if len(set(names)) < len(names):
        names = [str(path) for path in files]
    if len(set(names)) < len(names):
        raise ConfigError("--rubric names a file twice; give each once")
    return {name: load_rubric(path, models) for name, path in zip(names, files, strict=True)}
