"""`adaptive-eval study EXPERIMENT`: repeat the experiments of the paper, each by a seeded command.

The modules of an experiment are imported when it is called, like the commands themselves.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_eval.base.files import make_folder
from adaptive_eval.cli.progress import Progress
from adaptive_eval.cli.shared import report_errors

if TYPE_CHECKING:
    from adaptive_eval.study.experiment import Experiment, OnStudyProgress, StudyRequest

app = typer.Typer(
    name="study",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

Seed = Annotated[int, typer.Option(min=0, help="Seed of the simulation: another one draws other samples.")]
Output = Annotated[Path | None, typer.Option("--output", help="Write tables (CSV), findings (JSON) and figures here.")]


@app.callback()
def study() -> None:
    """Repeat an experiment of the Bayes@N paper: a table, and with --output its data and figures.

    Each compares what it has measured with what is required or printed in the paper. The same seed gives the same
    figures; fewer --replicates are faster, more are more precise.
    """


def _run_study(
    experiment: "Callable[[OnStudyProgress], Experiment]", output: Path | None, runs: Sequence[Path] = ()
) -> None:
    """Run an experiment with a progress bar, then show and write its results."""
    with report_errors(*runs):
        from rich.console import Console

        from adaptive_eval.show.experiments import MEND, has_figures, show_experiment, write_experiment

        if output is not None:  # before minutes of work
            make_folder(output, MEND)
            if not has_figures():
                typer.echo("no figures: they need an extra; pip install 'adaptive-eval[plots]'", err=True)
        with Progress(1.0) as progress:
            found = experiment(progress.to)
        show_experiment(found, Console(highlight=False, markup=False))
        if output is not None:
            for path in write_experiment(found, output):
                typer.echo(str(path))


def _run_sampling_study(
    study: "Callable[[StudyRequest, OnStudyProgress], Experiment]", replicates: int, seed: int, output: Path | None
) -> None:
    """Run an experiment that draws `replicates` samples."""
    from adaptive_eval.study.experiment import StudyRequest

    _run_study(lambda on_progress: study(StudyRequest(replicates, seed), on_progress), output)


@app.command()
def coins(
    matrices: Annotated[int, typer.Option(min=2, help="Number of independent matrices of results.")] = 1000,
    bootstrapped: Annotated[int, typer.Option(min=2, help="Number of these that the bootstrap resamples.")] = 40,
    replicates: Annotated[
        int, typer.Option(min=1, help="Bootstrap samples of all of these together, for each metric.")
    ] = 10_000,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """How fast Bayes@N and the Pass@k family find the order of eleven biased coins (section 2.7, Fig. 1)."""
    from adaptive_eval.study.coins import CoinsRequest, study_coins

    _run_study(
        lambda on_progress: study_coins(CoinsRequest(matrices, bootstrapped, replicates, seed), on_progress), output
    )


@app.command()
def ranking(
    replicates: Annotated[int, typer.Option(min=1, help="Number of draws of results to rank.")] = 10_000,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """The coins ranked with and without uncertainty (section 2.9, Table 1)."""
    from adaptive_eval.study.ranking import study_ranking

    _run_sampling_study(study_ranking, replicates, seed, output)


@app.command()
def separation(
    replicates: Annotated[int, typer.Option(min=1, help="Number of pairs of result matrices.")] = 20_000,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """How many trials tell two near coins apart (section 2.9, Fig. 3)."""
    from adaptive_eval.study.ranking import study_separation

    _run_sampling_study(study_separation, replicates, seed, output)


@app.command()
def priors(
    replicates: Annotated[int, typer.Option(min=1, help="Number of times that all models are updated.")] = 50_000,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """The worth of an older model's outcomes as a prior for a newer one (section 2.8, Fig. 2)."""
    from adaptive_eval.study.priors import study_priors

    _run_sampling_study(study_priors, replicates, seed, output)


@app.command()
def convergence(
    data: Annotated[list[Path], typer.Argument(help="Runs, or .npz files of outcomes.", metavar="DATA...")],
    replicates: Annotated[int, typer.Option(min=1, help="Bootstrap samples for each metric.")] = 100_000,
    trials: Annotated[
        int | None, typer.Option(min=2, help="Use this many trials of each question; default: all, up to 80.")
    ] = None,
    top: Annotated[int | None, typer.Option(min=2, help="Use only this many models, the best ones.")] = None,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """How many trials recorded rankings take to settle (sections 3.1 and 3.3, Figs. 4-6 and 9, Tables 2 and 8-10)."""
    from adaptive_eval.study.convergence import ConvergenceRequest, study_convergence

    request = ConvergenceRequest(data, replicates, trials, top, seed)
    _run_study(lambda on_progress: study_convergence(request, on_progress), output, data)


@app.command()
def intervals(
    replicates: Annotated[
        int, typer.Option(min=2, help="Simulated models for each number of questions and of trials.")
    ] = 1000,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """How often credible, CLT and bootstrap intervals hold the true score (section 2.6)."""
    from adaptive_eval.study.intervals import study_intervals

    _run_sampling_study(study_intervals, replicates, seed, output)
