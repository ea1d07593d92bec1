"""Studies of recorded outcomes and of runs, against the definitions and against what is stored."""

import json
from pathlib import Path

import numpy as np
import pytest
from live_runs import EndedRuns, Site
from typer.testing import CliRunner

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli import app
from adaptive_eval.show.plots import grid, styled
from adaptive_eval.show.study_figures import _draw, _draw_cells
from adaptive_eval.study.convergence import PANELS, ConvergenceRequest, draw_subsets, read_tensor, study_convergence
from adaptive_eval.study.experiment import Curve, DataTable, Experiment, Panel, StudyRequest
from adaptive_eval.study.intervals import KINDS, all_intervals, study_intervals
from scorio.convergence import Study, convergence_at_n


def unwatched(share: float, state: str) -> None:
    """Ignore the progress."""


def sheet(found: Experiment, name: str) -> DataTable:
    (one,) = [each for each in found.tables if each.name == name]
    return one


def outcomes(seed: int, models: int = 6, trials: int = 20, questions: int = 10) -> np.ndarray:
    rng = np.random.default_rng(seed)
    chances = np.linspace(0.2, 0.8, models)[:, None, None]
    return (rng.random((models, questions, trials)) < chances).astype(np.int8)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    np.savez(tmp_path / "six.npz", R=outcomes(1))
    return tmp_path / "six.npz"


def test_convergence_is_that_of_the_definition(recorded: Path) -> None:
    found = study_convergence(ConvergenceRequest([recorded], replicates=200, seed=3), unwatched)
    best = np.argsort(-outcomes(1).mean(axis=(1, 2)), kind="stable")
    alone = convergence_at_n(Study.of(outcomes(1)[best]), 200, np.random.default_rng([3, 1]))
    rows = {row[0]: row for row in sheet(found, "convergence_six").rows}
    columns = sheet(found, "convergence_six").columns
    at = dict(zip(columns, rows["Bayes@N"], strict=True))
    assert at["mean n"] == pytest.approx(alone.mean) and at["never"] == pytest.approx(alone.never)
    spread = [row for row in sheet(found, "convergence_distribution").rows if row[1] == "Bayes@N"]
    assert [row[2] for row in spread] == list(range(1, 20)), "N itself is no convergence"
    assert sum(float(str(row[3])) for row in spread) == pytest.approx(1.0 - alone.never)
    assert any("cannot be reproduced without their outcomes" in note for note in found.notes)


def test_what_does_not_converge_is_told_as_that(tmp_path: Path) -> None:
    ties = np.zeros((2, 1, 9), dtype=np.int8)
    ties[0, 0, 8] = 1
    np.savez(tmp_path / "late.npz", R=ties)
    found = study_convergence(ConvergenceRequest([tmp_path / "late.npz"], replicates=60), unwatched)
    row = dict(
        zip(
            *(part for part in (sheet(found, "convergence_late").columns, sheet(found, "convergence_late").rows[0])),
            strict=True,
        )
    )
    assert 0.0 < float(str(row["never"])) < 1.0 and row["worst"] == "no convergence"
    assert any("do not converge by Bayes@N, and are in no mean" in note for note in found.notes)


def test_panels_are_of_different_subsets_and_as_many_as_the_paper_has() -> None:
    subsets = list(draw_subsets(20, np.random.default_rng(0)))
    assert len(set(subsets)) == len(subsets) == sum(PANELS.values())
    assert {size: sum(len(one) == size for one in subsets) for size in PANELS} == PANELS
    few = list(draw_subsets(6, np.random.default_rng(0)))
    assert len(few) == 6 and all(len(set(one)) == 5 for one in few)


def test_every_subset_has_its_row(recorded: Path) -> None:
    found = study_convergence(ConvergenceRequest([recorded], replicates=100, seed=3), unwatched)
    rows, panels = (sheet(found, f"convergence_{name}").rows for name in ("subsets", "panels"))
    for data, size, subsets, mean, *_ in panels:
        mine = [row for row in rows if row[:2] == (data, size)]
        assert len(mine) == subsets and len({row[2] for row in mine}) == subsets
        means = [float(row[3]) for row in mine if row[3] is not None]
        assert mean == (pytest.approx(np.mean(means)) if means else None)


@pytest.mark.parametrize("up", ["share of replicates", "coverage of 95% intervals"])
def test_a_figures_ranks_shares_and_colours_mean_one_thing(up: str) -> None:
    shares = Panel("a", "n", up, (Curve("x", (1, 2), (0.4, 0.6)), Curve("y", (1, 2), (1.0, 0.9))))
    ranks = Panel("b", "n", "rank", (Curve("y", (1, 2), (1.0, 1.0)), Curve("z", (1, 2), (2.0, 1.0))))
    colours = {"x": 0, "y": 1}
    with styled():
        _, (first, second) = grid(2, 1, 6.0)
        _draw(first, shares, colours)
        _draw(second, ranks, colours)
        assert first.get_ylim()[0] == 0.0
        assert second.get_ylim()[0] > second.get_ylim()[1], "rank 1 is on top"
        first.figure.draw_without_rendering()
        legend = first.get_legend().get_window_extent()
        assert legend.x0 >= first.get_window_extent().x1, "it covers no curve"
        heights = [text.xy[1] for text in second.texts]
        assert len(set(heights)) == len(heights), "names of one rank stand below each other"
        drawn = [[line.get_color() for line in axes.lines] for axes in (first, second)]
    assert drawn[0][1] == drawn[1][0] and drawn[1][1] == "#666666", "what has ranks alone has no colour of others"


def test_the_heat_map_has_each_subset_in_its_columns_with_the_value_of_its_row(recorded: Path) -> None:
    found = study_convergence(ConvergenceRequest([recorded], replicates=100, seed=3), unwatched)
    (panel,) = next(one.panels for one in found.figures if one.name == "convergence_5_models_six")
    rows = sheet(found, "convergence_subsets").rows
    assert panel.kind == "cells" and len(panel.curves) == len(rows)
    with styled():
        figure, (axes,) = grid(1, 1, 4.0)
        _draw_cells(figure, axes, panel)
        cells = axes.images[0].get_array().filled(np.nan)
        named = [tick.get_text() for tick in axes.get_xticklabels()]
    for drawn, (_, _, subset, mean, never) in zip(cells, rows, strict=True):
        assert [name for name, value in zip(named, drawn, strict=True) if value == value] == str(subset).split(", ")
        assert never < 1.0 and np.nanmin(drawn) == np.nanmax(drawn) == mean


def test_counts_are_drawn_without_replacement(tmp_path: Path) -> None:
    right = np.array([[3, 0], [5, 2]])
    np.savez(tmp_path / "counts.npz", correct=right, count=np.full((2, 2), 5))
    tensor = read_tensor(tmp_path / "counts.npz", None, np.random.default_rng(0))
    assert tensor.outcomes.sum(axis=2).tolist() == right.tolist() and tensor.outcomes.shape == (2, 2, 5)


def test_trials_that_are_missing_are_skipped(tmp_path: Path) -> None:
    ragged = np.array([[[-1, 1, 0, 1]], [[0, -1, 0, 1]]])
    np.savez(tmp_path / "ragged.npz", R=ragged)
    assert read_tensor(tmp_path / "ragged.npz", None, np.random.default_rng(0)).outcomes.tolist() == [
        [[1, 0, 1]],
        [[0, 0, 1]],
    ]


@pytest.mark.parametrize(
    ("arrays", "trials", "message"),
    [
        ({"R": np.zeros((2, 3, 4), int)}, None, "all models have the same score"),
        ({"R": outcomes(2)}, 21, "--trials must be at most 20"),
        ({"R": outcomes(2)[:1]}, None, "at least 2 models"),
        ({"R": outcomes(2)[..., :1]}, None, "at least 2 trials"),
        ({"R": np.arange(24).reshape(2, 3, 4) % 3}, None, "categories without weights"),
    ],
)
def test_what_cannot_be_studied_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], trials: int | None, message: str
) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        study_convergence(ConvergenceRequest([tmp_path / "bad.npz"], replicates=3, trials=trials), unwatched)
    with pytest.raises(ConfigError, match="neither a file nor a run"):
        study_convergence(ConvergenceRequest([tmp_path / "none.npz"], replicates=3), unwatched)


@pytest.mark.slow  # draws twelve figures
def test_the_command_takes_runs_and_files_at_once(
    recorded: Path, site: Site, ended_runs: EndedRuns, tmp_path: Path
) -> None:
    run = ended_runs.copy(site)
    words = ["study", "convergence", str(recorded), str(run), "--replicates", "20", "--output", str(tmp_path / "out")]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    said = json.loads((tmp_path / "out" / "convergence.json").read_text())["study"]
    assert {"six", run.name} <= said["settings"].keys()
    assert (tmp_path / "out" / "convergence_six.svg").read_text().startswith("<?xml")


@pytest.mark.slow
def test_intervals_cover_as_the_theory_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_eval.study.intervals.QUESTIONS", (30,))
    found = study_intervals(StudyRequest(replicates=100, seed=1), unwatched)
    thirty = {
        str(row[0]): dict(zip((1, 2, 4, 8, 16, 40, 80), row[1:], strict=True))
        for row in sheet(found, "intervals_30").rows
    }
    assert thirty.keys() == set(KINDS)
    assert all(float(str(thirty["avg@N, credible"][n])) > 0.85 for n in (2, 8, 80))
    assert all(float(str(thirty[kind][1])) == 0.0 for kind in ("CLT, trials", "bootstrap, trials")), "no width at N = 1"
    assert float(str(thirty["CLT, trials"][80])) == pytest.approx(0.95, abs=0.06)
    assert float(str(thirty["CLT, questions"][80])) > 0.98


def test_intervals_are_centred_on_their_estimates() -> None:
    right = np.array([[3, 1, 0, 4], [2, 2, 2, 2]])
    for kind, ends in all_intervals(right, 4, np.random.default_rng(0)).items():
        middle = ends.mean(axis=0)
        assert middle == pytest.approx([0.5, 0.5], abs=0.04), kind
        assert (ends[1] >= ends[0]).all()
