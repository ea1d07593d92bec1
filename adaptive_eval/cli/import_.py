"""`adaptive-eval import`: make a run from logs of other harnesses, tables or arrays."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.progress import Progress
from adaptive_eval.cli.shared import report_errors
from adaptive_eval.config.load import load_config
from adaptive_eval.exchange.configure import CONFIG_FILE, ImportRequest
from adaptive_eval.exchange.detect import LOGS
from adaptive_eval.exchange.importing import GraderComparison, ImportResult, import_logs
from adaptive_eval.record.lines import safe_line, several
from adaptive_eval.record.warnings import repeats_warning
from adaptive_eval.show.summary import judged_once

SHOWN_REASONS = 3

Files = Annotated[
    list[str],
    typer.Argument(help="Logs, or folders of logs; NAME=FILE says what its model is called.", metavar="FILE..."),
]
To = Annotated[Path, typer.Option(help="A new run directory.", metavar="RUN")]
Config = Annotated[
    Path | None, typer.Option(help="A configuration: its models, questions, grader and rubric, matched by name and id.")
]
Grader = Annotated[str | None, typer.Option(help="Grade every text again: math, exact, choice, numeric ...")]
Weights = Annotated[str | None, typer.Option(help="The possible scores, as in 0,0.5,1; default: 0,1.")]
Scorer = Annotated[
    str | None, typer.Option(help="The score that counts, if a log has several; METRIC[,FILTER] of lm-eval.")
]
LeaveOut = Annotated[list[str] | None, typer.Option(help="Leave out a model or a question.", metavar="NAME")]
Further = Annotated[
    bool, typer.Option("--further", help="Add the trials of each file to those of the files before it.")
]
RepeatsAreSamples = Annotated[
    bool, typer.Option("--repeats-are-samples", help="Count identical answers too: they are independent samples.")
]
Finished = Annotated[
    bool,
    typer.Option(
        "--finished", help="The trials are complete: judge them as a fixed design, to which nothing will be added."
    ),
]


def import_(
    files: Files,
    to: To,
    config: Config = None,
    grader: Grader = None,
    weights: Weights = None,
    scorer: Scorer = None,
    leave_out: LeaveOut = None,
    further: Further = False,
    repeats_are_samples: RepeatsAreSamples = False,
    finished: Finished = False,
) -> None:
    """Make a run from logs of other tools.

    {logs}, and tables (CSV, JSONL, Parquet) with one row a trial: model, question, trial, and category, score, correct
    or text. A request that failed is a missing trial, never a wrong answer; an answer that equals another one
    of the same question and model word for word counts once, unless --repeats-are-samples. Short answers, which may
    repeat by chance, each count if the model's answers to some question differ.

    One look judges the trials, with a horizon of 80 trials a question unless --finished is given. If all trials have
    the seeds that --config gives them, the run goes on as if it had asked for them. `report`, `monitor`, `plan` and
    `replay` work on the run, and `run` goes on with it: with the config.yaml in it, once the addresses of its models
    are filled in.
    """
    with report_errors():
        request = ImportRequest(
            files=files,
            to=to,
            config=None if config is None else load_config(config),
            grader=grader,
            weights=None if weights is None else _numbers(weights),
            scorer=scorer,
            left_out=tuple(leave_out or ()),
            further=further,
            repeats_are_samples=repeats_are_samples,
            finished=finished,
            arguments=None if config is None else (str(config), "--run-dir", str(to)),
        )
        with Progress(1.0) as progress:
            done = import_logs(request, lambda share, trials: progress.to(share, f"{trials:,} trials"))
        for line in _report_lines(done, config, finished):
            typer.echo(line)


import_.__doc__ = (import_.__doc__ or "").format(logs=LOGS)  # keeps the help complete


def _numbers(text: str) -> tuple[float, ...]:
    rule = f"--weights must be numbers with commas between them, as in 0,0.5,1, but got {text!r}"
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(rule) from error
    if not all(map(math.isfinite, numbers)):
        raise ConfigError(rule)
    return numbers


def _report_lines(done: ImportResult, config: Path | None, finished: bool) -> Iterator[str]:
    gathering = done.gathering
    models, questions = len(gathering.models), len({key for _, key in gathering.trials})
    yield f"{several(done.trials, 'trial')} of {several(models, 'model')} on {several(questions, 'question')}"
    yield from _import_notes(done)
    if done.results is not None:
        yield ""
        yield from judged_once(done.results, done.path)
    else:
        yield "no look yet: every model lacks trials that the first look needs (trials.min of each question); run it"
    if done.compared.grader is None:
        yield from _missing_grader_note(done, done.compared, config)
    elif config is not None:
        yield f"for more  adaptive-eval run {config} --run-dir {done.path}"
    elif done.runnable and not finished:
        file = done.path / CONFIG_FILE
        yield f"for more  fill in the addresses in {file}, then: adaptive-eval run {file} --run-dir {done.path}"


def _missing_grader_note(done: ImportResult, compared: GraderComparison, config: Path | None) -> Iterator[str]:
    """Why the run has no grader, and how it can still go on."""
    assert compared.agreement is not None
    yield f"grades    {compared.agreement.summary}, for example"
    yield from (f"          {safe_line(one, 400)}" for one in compared.agreement.examples)
    file = config or done.path / CONFIG_FILE
    those = f" (on a sample: {', '.join(compared.instead)})" if compared.instead else ""
    yield f"          the run has no grader until {file} names one that gives these grades{those}"
    yield f"          or all are graded by another one: adaptive-eval regrade {done.path} --config {file}"


def _import_notes(done: ImportResult) -> Iterator[str]:
    """Notes on missing, repeated, copied and differing records."""
    gathering = done.gathering
    for model, keys in gathering.differing.items():
        named = ", ".join(keys)
        yield f"sampling  {safe_line(model, 40)} had another {named} for each task; {CONFIG_FILE} leaves it out"
    for model, reasons in gathering.missing.items():
        most = sorted(reasons.items(), key=lambda item: -item[1])[:SHOWN_REASONS]
        told = ", ".join(f"{number} {why}" for why, number in most)
        yield f"missing   {sum(reasons.values())} of {model}: {told}"
    for model, number in gathering.repeated.items():
        yield f"repeats   {model}: {repeats_warning(number)}"
    if gathering.copies:
        yield f"copies    {gathering.copies} records that are copies of others"
    if gathering.reworded:
        yield f"warning   {gathering.reworded} records have another prompt than the first of their question"
