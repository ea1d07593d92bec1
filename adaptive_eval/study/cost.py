"""What runs have cost, by model and by run (paper, Table 7 and Fig. 8): sums over the trials that are stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.store import RunReader
from adaptive_eval.store.postgres.address import whole_path
from adaptive_eval.store.records import NO_GRADING
from adaptive_eval.study.experiment import Cell, Curve, DataTable, Experiment, Panel, StudyFigure


class SpentTrials(NamedTuple):
    """What the trials of one model in one run come to."""

    run: str
    model: str
    trials: int
    prompt_tokens: int
    completion_tokens: int
    grading_tokens: int
    """Of a judge or a verifier, those of verdicts that could not be read or were replaced included."""
    usd: float
    answer_hours: float
    """All answers one after the other: the time of inference that the paper sums."""
    gpu_hours: float
    server_hours: float | None
    """For how long its servers were held; None where nobody has measured it."""


def spent_in(directory: Path) -> list[SpentTrials]:
    """Every model of a run, those without a trial included."""
    with RunReader.intact(directory) as reader:
        models, held, sums = reader.header().models, reader.held() or {}, reader.sums()
        grading = reader.grading_uses()
    name, found = whole_path(directory).name, []
    for model in models:
        own, used = [one for one in sums if one.model == model], grading.get(model, NO_GRADING)
        found.append(
            SpentTrials(
                run=name,
                model=model,
                trials=sum(one.trials for one in own),
                prompt_tokens=sum(one.prompt_tokens for one in own),
                completion_tokens=sum(one.completion_tokens for one in own),
                grading_tokens=used.cost.tokens + used.in_vain.tokens,
                usd=sum(one.usd for one in own),
                answer_hours=sum(one.latency for one in own) / 3600.0,
                gpu_hours=sum(one.gpu_seconds for one in own) / 3600.0,
                server_hours=held[model].seconds / 3600.0 if model in held else None,
            )
        )
    return found


def study_cost(directories: Sequence[Path]) -> Experiment:
    """Add up what the runs have stored."""
    rows = [row for directory in directories for row in spent_in(directory)]
    by_run = _grouped(rows, "run")
    return Experiment(
        name="cost",
        title="Tokens, money and hours (paper, Table 7 and Fig. 8)",
        settings={"runs": len(directories)},
        tables=(
            DataTable("cost_by_run", "by run", ("run", *_SUMMED), (*by_run, ("TOTAL", *_sums(rows)))),
            DataTable("cost_by_model", "by model", ("model", *_SUMMED), tuple(_grouped(rows, "model"))),
            DataTable("cost", "by run and model", SpentTrials._fields, tuple(map(tuple, rows)), shown=False),
        ),
        figures=(_figure(rows),),
        notes=(
            "Sums over the stored trials, those of rounds that were left incomplete included. Answer hours are "
            "all answers one after the other. Server hours, for which servers were held, are missing where unknown.",
        ),
    )


_SUMMED = SpentTrials._fields[2:]


def _sums(rows: Sequence[SpentTrials]) -> tuple[Cell, ...]:
    values: list[Cell] = []
    for name in _SUMMED:
        known = [value for row in rows if (value := getattr(row, name)) is not None]
        values.append(sum(known) if known else None)
    return tuple(values)


def _grouped(rows: Sequence[SpentTrials], by: str) -> list[tuple[Cell, ...]]:
    names = dict.fromkeys(getattr(row, by) for row in rows)
    return [(name, *_sums([row for row in rows if getattr(row, by) == name])) for name in names]


def _figure(rows: Sequence[SpentTrials]) -> StudyFigure:
    """A point for each model, run by run, in the order of the tables."""
    models = list(dict.fromkeys(row.model for row in rows))
    panels = []
    for name, title in (("completion_tokens", "completion tokens"), ("answer_hours", "hours of answers")):
        curves = []
        for run in dict.fromkeys(row.run for row in rows):
            own = [row for row in rows if row.run == run]
            places = tuple(float(models.index(row.model) + 1) for row in own)
            curves.append(Curve(run, places, tuple(float(getattr(row, name)) for row in own)))
        panels.append(Panel(f"{title} by model", "model, in the order of the table", title, tuple(curves), "bars"))
    return StudyFigure("cost", tuple(panels))
