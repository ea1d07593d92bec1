"""`adaptive-eval export`: write a run in other formats."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.lists import first_few
from adaptive_eval.cli.progress import Progress
from adaptive_eval.cli.shared import report_errors
from adaptive_eval.config.prepare import stored_config
from adaptive_eval.exchange.export import EXPORTS
from adaptive_eval.exchange.export import export as export_run
from adaptive_eval.report.lines import safe_name, several
from adaptive_eval.report.reader import RunReader

MAX_NAMES, MAX_CHARACTERS = 8, 60
"""Limits of the models that a note names."""
TRIALS_PER_STEP = 1000
"""Trials per step of the progress bar."""

Run = Annotated[Path, typer.Argument(help="The directory of a run, finished or not.", metavar="RUN")]
Name = Annotated[str, typer.Option("--format", help=f"One of {', '.join(EXPORTS)}.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A file; default: in RUN.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Text = Annotated[
    bool | None, typer.Option("--text/--no-text", help="Include what the models wrote; default: yes, except in csv.")
]


def export(run: Run, format_name: Name, output: Output = None, force: Force = False, text: Text = None) -> None:
    """Write the trials of RUN as an array or a table.

    npz: an array of categories by model, question and trial, which `replay` reads. csv, jsonl, parquet: one row per
    trial. A run in progress is exported as it is at this moment.
    """
    with report_errors():
        if format_name not in EXPORTS:
            raise ConfigError(f"--format must be one of {', '.join(EXPORTS)}, but got {format_name!r}")
        with closing(RunReader.open(run)) as reader:
            trials, config = reader.trial_count(), stored_config(reader.header())
        with Progress(max(trials, 1)) as progress:

            def on_progress(number: int) -> None:
                if number % TRIALS_PER_STEP == 0:
                    progress.to(number, f"{number:,} trials")

            exported = export_run(run, format_name, output, force=force, texts=text, on_progress=on_progress)
    typer.echo(f"{exported.path}: {several(exported.trials, 'trial')} of {several(exported.models, 'model')}")
    if recorded := [safe_name(model.name, MAX_CHARACTERS) for model in config.models if model.recorded is not None]:
        names = first_few(recorded, MAX_NAMES)
        typer.echo(f"note: it does not hold the outcomes of {names}, which are recorded; export their run, too")
    if config.prior is not None:
        source = safe_name(str(config.prior.run), MAX_CHARACTERS)
        typer.echo(f"note: it does not hold the outcomes of R0; `import --config` takes them from {source}")
    if exported.removed:
        names = first_few([safe_name(name, MAX_CHARACTERS) for name in exported.removed], MAX_NAMES)
        typer.echo(f"note: it also holds {names}, no longer in the run; `import --leave-out NAME` leaves a model out")
    if config.benchmarks:
        typer.echo("note: it has no weights of benchmarks; `import` and `replay` take them from a file, with --config")
    if exported.missing:
        typer.echo(
            f"warning: {exported.missing} of them timed out, or have no answer or no grade: npz has no place for them, "
            "so that an import cannot count them; export another format to keep them"
        )
    if exported.repeating:
        names = first_few([safe_name(name, MAX_CHARACTERS) for name in exported.repeating], MAX_NAMES)
        typer.echo(
            f"warning: answers of {names} come back word for word, and without their texts an import counts them as "
            "independent; export jsonl, or another format with --text, to keep the alarm",
            err=True,
        )
    if format_name == "npz" and exported.untried:
        pairs = f"{exported.untried} pairs of a model and a question"
        typer.echo(f"note: it has no trial of {pairs}, and `replay` needs one of each")
