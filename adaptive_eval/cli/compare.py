"""`adaptive-eval compare RUN_A RUN_B`: changes between two runs of the same questions."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.cli.shared import TextFile, TextKind, report_errors, write_document
from adaptive_eval.report.shared_answers import shared_answers
from adaptive_eval.report.stored import RunCounts, read_counts
from adaptive_eval.report.view import RunView, read_view
from adaptive_eval.show.changes import diff_runs
from adaptive_eval.show.changes_shown import changes_blocks

FORMAT = "adaptive-eval.comparison/1"


def compare(
    run_a: Annotated[Path, typer.Argument(help="The run before.", metavar="RUN_A")],
    run_b: Annotated[Path, typer.Argument(help="The run after.", metavar="RUN_B")],
    kind: TextKind = None,
    output: TextFile = None,
) -> None:
    """Show what changed from RUN_A to RUN_B. It compares scores, verdicts, questions and settings.

    Scores are compared on the models and questions that both runs have.
    """
    with report_errors():
        a, b = read_view(run_a), read_view(run_b)
        _require_comparable(a, b, f"{run_a} and {run_b}")
        if a.name == b.name or (a.name, b.name) != (run_a.resolve().name, run_b.resolve().name):
            a, b = replace(a, name=str(run_a)), replace(b, name=str(run_b))
        counts_a, counts_b = _scored_answers(run_a), _scored_answers(run_b)
        diff = diff_runs(a, counts_a, b, counts_b, shared_answers(run_a, run_b))
        document = {"format": FORMAT, "changes": diff.to_plain()}
        write_document(f"{a.name} → {b.name}", changes_blocks(diff, a.weights), document, kind, output)


def _scored_answers(run: Path) -> RunCounts:
    """The counts of a run; raises `ConfigError` if there are none."""
    counts = read_counts(run)
    if not counts.cells.any():
        raise ConfigError(f"{run} has no look yet, so there is nothing to compare; let it run on")
    return counts


def _require_comparable(a: RunView, b: RunView, runs: str) -> None:
    """Raise `ConfigError` if the scores of two runs cannot be compared; `runs` names both."""
    if a.weights != b.weights or a.categories != b.categories:
        raise ConfigError(
            f"{runs} have different rubrics, so their scores cannot be compared: "
            f"{_rubric(a)} against {_rubric(b)}; `adaptive-eval regrade` applies another rubric to a run"
        )
    if not {question.id for question in a.questions} & {question.id for question in b.questions}:
        raise ConfigError(f"{runs} have no question in common (by id); compare runs of one benchmark")
    if not set(a.models) & set(b.models):
        raise ConfigError(
            f"{runs} have no model in common (by name): {', '.join(a.models)} against "
            f"{', '.join(b.models)}; give a model the same name in both"
        )


def _rubric(view: RunView) -> str:
    return ", ".join(
        f"{name} {plain_number(weight)}" for name, weight in zip(view.categories, view.weights, strict=True)
    )
