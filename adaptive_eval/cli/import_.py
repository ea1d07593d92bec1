"""`adaptive-eval import`: make a run from logs of other harnesses, tables or arrays."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.progress import Progress
from adaptive_eval.cli.shared import report_errors, typed_command
from adaptive_eval.config.load import load_config
from adaptive_eval.exchange.configure import CONFIG_FILE, ImportRequest
from adaptive_eval.exchange.detect import LOGS
from adaptive_eval.exchange.importing import ImportResult, import_logs
from adaptive_eval.graders.agreement import Agreement
from adaptive_eval.report.lines import safe_line, several
from adaptive_eval.report.needs import cost_to_go_on, ends_by_alarm
from adaptive_eval.report.results import Results
from adaptive_eval.report.warnings import repeats_warning
from adaptive_eval.show.summary import untimed_findings

MAX_REASONS = 3

Files = Annotated[
    list[str],
    typer.Argument(help="Logs, or folders of logs; NAME=FILE names its model.", metavar="FILE..."),
]
To = Annotated[Path, typer.Option(help="A new run directory.", metavar="RUN")]
Config = Annotated[
    Path | None, typer.Option(help="A configuration: its models, questions, grader and rubric, matched by name and id.")
]
Grader = Annotated[str | None, typer.Option(help="Grade all texts again: math, exact, choice, numeric ...")]
Weights = Annotated[str | None, typer.Option(help="The possible scores, as in 0,0.5,1; default: 0,1.")]
Scorer = Annotated[str | None, typer.Option(help="The score to use if a log has several; METRIC[,FILTER] for lm-eval.")]
LeaveOut = Annotated[list[str] | None, typer.Option(help="Leave out a model or a question.", metavar="NAME")]
Further = Annotated[bool, typer.Option("--append", help="Add the trials of each file to those of the files before it.")]
RepeatsAreSamples = Annotated[
    bool, typer.Option("--repeats-are-samples", help="Count identical answers, too: they are independent samples.")
]
Finished = Annotated[
    bool,
    typer.Option("--finished", help="No trials will be added: judge them as a fixed design."),
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

    It reads {logs}, and tables (CSV, JSONL, Parquet) with one row per trial: model, question, trial, and one of
    category, score, correct and text. A failed request is a missing trial, not a wrong answer. Identical answers of a
    model to a question count once, unless --repeats-are-samples is given; short ones may repeat by chance, and count
    if the model's answers to some question differ.

    The trials are judged once, as in the first look of a run with trials.max 80, unless --finished is given. If all
    trials have the seeds of --config, the run goes on as if it had requested them. `report`, `monitor`, `plan` and
    `replay` work on the run. To continue it, fill in the models' addresses in its config.yaml, and use `run`.
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
        judged = 0 if done.results is None else sum(row.trials for row in done.results.models)
        if request.config is not None and request.config.budget.caps and judged < done.trials:
            typer.echo(
                "limits    the budget reserves the worst case, and may leave out trials that are there; raise it, or"
            )
            typer.echo("          remove it, to count more of them")
        if done.disagreement is not None and request.config is not None and request.config.prior is not None:
            typer.echo("prior     R0 does not count yet: `run` takes it once the grader is settled")


import_.__doc__ = (import_.__doc__ or "").format(logs=LOGS)  # the help lists all formats


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
        yield from untimed_findings(done.results, done.path)
    else:
        yield "no look yet: a model lacks trials of its first round, or the budget does not cover it; `run` goes on"
    if done.disagreement is not None:
        yield from _missing_grader_note(done, done.disagreement, config)
    elif done.results is not None and _asks_no_more(done.results):
        return
    elif config is not None:
        yield f"for more  {typed_command('run', config, None, '--run-dir', str(done.path))}"
    elif done.runnable and not finished:
        file = done.path / CONFIG_FILE
        command = typed_command("run", file, None, "--run-dir", str(done.path))
        yield f"for more  fill in the addresses in {file}, then: {command}"


def _asks_no_more(results: Results) -> bool:
    """Whether a start of the run would request nothing: models without their first trials get these."""
    lacks_first_trials = any(row.set_aside is not None for row in results.models) and not ends_by_alarm(results)
    return cost_to_go_on(results) is None and not lacks_first_trials


def _missing_grader_note(done: ImportResult, disagreement: Agreement, config: Path | None) -> Iterator[str]:
    """Why the run has no grader, and how to continue it."""
    file = config or done.path / CONFIG_FILE
    regrade = typed_command("regrade", done.path, None, "--config", str(file))
    if not disagreement.tried:
        yield f"grades    {disagreement.summary}"
        yield "          to go on, have it grade all answers again:"
        yield f"          {regrade}"
        return
    yield f"grades    {disagreement.summary}, for example"
    yield from (f"          {safe_line(example, 400)}" for example in disagreement.examples)
    yield f"          name a grader in {file} that gives these grades"
    yield "          or grade all answers by another one:"
    yield f"          {regrade}"


def _import_notes(done: ImportResult) -> Iterator[str]:
    """Notes on missing, repeated, copied and differing records."""
    gathering = done.gathering
    for task, (scorer, others) in done.scorers.items():
        if others:
            found = f"{task}: {scorer} counts, not {', '.join(others)}; --scorer chooses"
            yield f"scores    {safe_line(found, 200)}"
    for model, keys in gathering.differing.items():
        named = ", ".join(keys)
        yield f"sampling  {safe_line(model, 40)} had a different {named} in each task; {CONFIG_FILE} omits it"
    for model, reasons in gathering.missing.items():
        commonest = sorted(reasons.items(), key=lambda item: -item[1])[:MAX_REASONS]
        counts = ", ".join(f"{number} {why}" for why, number in commonest)
        yield f"missing   {sum(reasons.values())} of {model}: {counts}"
    if renumbered := gathering.renumbered:
        model, question, number, now = renumbered[0]
        more = "" if len(renumbered) == 1 else f", and {len(renumbered) - 1} more such cells"
        yield (
            f"numbers   the run counts trials from 0, without gaps: trial {number} of {safe_line(question, 40)} by "
            f"{safe_line(model, 40)} is trial {now} here{more}; labels need these numbers"
        )
    for model, number in gathering.repeated.items():
        yield f"repeats   {model}: {repeats_warning(number)}"
    if gathering.copies:
        yield f"copies    {gathering.copies} records are copies of others"
    if gathering.reworded:
        yield f"warning   {gathering.reworded} records have a different prompt than the first record of their question"
