"""A board: which runs are of one benchmark, which score of a model counts, and what the average is."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from live_runs import MODELS, EndedRuns, Site, without_checksums
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.errors import StoreError
from adaptive_eval.record.board import Board, board_of
from adaptive_eval.record.board_runs import BoardRun, RunOnBoard, RunScore, gather
from adaptive_eval.record.view import read_view
from adaptive_eval.store.database import DATABASE_FILE

HALF = 1.959963984540054


def run_with(
    name: str,
    scores: dict[str, tuple[float, float]],
    *,
    week: int = 1,
    benchmark: str = "aime",
    status: str = "finished",
    weights: tuple[float, ...] = (0.0, 1.0),
    **further: object,
) -> BoardRun:
    """A run whose models have these scores and standard errors."""
    order = sorted(scores, key=lambda model: -scores[model][0])
    models = tuple(
        RunScore(
            model,
            name,
            rank,
            rank,
            score,
            sigma,
            score - HALF * sigma,
            score + HALF * sigma,
            2 * sigma,
            100,
            False,
            False,
        )
        for rank, (model, (score, sigma)) in enumerate(((model, scores[model]) for model in order), start=1)
    )
    line = RunOnBoard(
        name, f"2026-01-{week:02d}T00:00:00+00:00", status, status in ("finished", "imported"), None, 100, models
    )
    run = BoardRun(line, benchmark, benchmark, 30, frozenset(), ("wrong", "right"), weights, "{}", ())
    return replace(run, **further)  # type: ignore[arg-type]


def placed(board: Board, benchmark: str) -> list[tuple[str, str, int]]:
    (one,) = [each for each in board.benchmarks if each.name == benchmark]
    return [(row.model, row.run, row.rank) for row in one.models]


def test_the_average_is_the_mean_of_independent_scores() -> None:
    rng = np.random.default_rng(0)
    draws = rng.normal([0.7, 0.5, 0.6], [0.03, 0.04, 0.12], (200_000, 3)).mean(axis=1)
    board = board_of(
        [
            run_with("a", {"x": (0.7, 0.03), "y": (0.2, 0.03)}, benchmark="aime"),
            run_with("b", {"x": (0.5, 0.04), "y": (0.9, 0.04)}, benchmark="math"),
            run_with("c", {"x": (0.6, 0.12), "y": (0.5, 0.04), "z": (0.9, 0.1)}, benchmark="gpqa"),
        ]
    )
    first, second, third = board.average
    assert (first.model, first.rank, first.score, second.model) == ("x", 1, pytest.approx(0.6), "y")
    assert first.sigma == pytest.approx(draws.std(), rel=0.01) and first.sampled_sigma == pytest.approx(2 * first.sigma)
    assert [first.lo, first.hi] == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.001)
    assert (first.tier, second.tier) == (1, 1), "0.067 apart, with standard errors of 0.043 and 0.021: z = 1.39"
    assert (third.model, third.score, third.rank, third.missing) == ("z", None, None, ("aime", "math"))
    assert board.no_average is None


def test_imported_outcomes_that_stand_in_a_run_are_of_its_benchmark_and_count_once() -> None:
    """A log without the texts of its questions, of which nobody knows by itself what benchmark it is of."""
    texts = frozenset({"What is 1 + 1?"})
    logs = run_with("logs", {"rival": (0.6, 0.03)}, benchmark="a log", status="imported", run="rivals")
    other = run_with("other", {"rival": (0.2, 0.03)}, benchmark="another log", status="imported", run="others")
    scores = {"rival": (0.6, 0.03), "new": (0.5, 0.03)}
    new = run_with("new", scores, week=2, texts=texts, takes=frozenset({"rivals"}))
    board = board_of([new, logs, other])
    assert placed(board, "aime") == [("rival", "new", 1), ("new", "new", 2)]
    assert {each.name: [run.name for run in each.runs] for each in board.benchmarks} == {
        "aime": ["logs", "new"],
        "another log": ["other"],
    }
    apart = board_of([replace(new, questions=29), logs])
    assert len(apart.benchmarks) == 2


def test_the_newest_run_that_is_over_counts_and_the_others_are_history() -> None:
    old = run_with("old", {"x": (0.5, 0.02), "y": (0.4, 0.02), "gone": (0.1, 0.02)}, week=1)
    new = run_with("new", {"x": (0.6, 0.02), "y": (0.3, 0.02)}, week=2)
    live = run_with("live", {"x": (0.9, 0.2), "newer": (0.31, 0.01)}, week=3, status="running")
    board = board_of([live, new, old])
    assert placed(board, "aime") == [("x", "new", 1), ("newer", "live", 2), ("y", "new", 3), ("gone", "old", 4)]
    (one,) = board.benchmarks
    assert [row.tier for row in one.models] == [1, 2, 2, 3] and one.decided_by is None
    assert [run.name for run in one.runs] == ["old", "new", "live"]
    changes = {change.model: change for change in one.changes}
    assert changes.keys() == {"x", "y"} and (changes["x"].before, changes["x"].after) == ("new", "live")
    assert changes["y"].difference == pytest.approx(-0.1)
    assert changes["y"].hi == pytest.approx(-0.1 + HALF * 0.02 * 2**0.5)


def test_a_live_run_counts_where_none_is_over_and_one_run_alone_keeps_what_it_decided() -> None:
    live = run_with("live", {"x": (0.5, 0.02), "y": (0.49, 0.02)}, status="running")
    (one,) = board_of([live]).benchmarks
    assert one.decided_by == "live" and [row.tier for row in one.models] == [1, 2], "its rule's, not a single look's"


def test_a_model_that_was_set_aside_does_not_hide_its_last_whole_score() -> None:
    old, new = (run_with(name, {"x": (0.5, 0.02)}, week=week) for week, name in enumerate(("old", "new"), start=1))
    aside = replace(new.line, models=(replace(new.line.models[0], set_aside=True),))
    assert placed(board_of([old, replace(new, line=aside)]), "aime") == [("x", "old", 1)]


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([run_with("a", {"x": (0.5, 0.1)})], "there is one benchmark with scores"),
        ([run_with("a", {})], "there is no benchmark with scores"),
        (
            [run_with("a", {"x": (0.5, 0.1)}), run_with("b", {"y": (0.5, 0.1)}, benchmark="math")],
            "no model has a score",
        ),
        (
            [run_with("a", {"x": (0.5, 0.1)}), run_with("b", {"x": (0.5, 0.1)}, benchmark="math", weights=(0.0, 2.0))],
            "different scales (0 to 1, 0 to 2)",
        ),
    ],
)
def test_why_there_is_no_average_is_told(runs: list[BoardRun], why: str) -> None:
    board = board_of(runs)
    assert board.no_average is not None and why in board.no_average
    assert all(row.score is None for row in board.average)


def test_a_run_that_has_only_begun_does_not_take_away_the_average() -> None:
    begun = run_with("c", {}, benchmark="gpqa", status="running")
    board = board_of([run_with("a", {"x": (0.5, 0.1)}), run_with("b", {"x": (0.7, 0.1)}, benchmark="math"), begun])
    assert board.average[0].score == pytest.approx(0.6) and "gpqa has no score yet" in board.notes[0]


def test_exact_ties_and_scores_without_any_error_are_ranked() -> None:
    board = board_of(
        [
            run_with("a", {"x": (1.0, 0.0), "y": (1.0, 0.0)}),
            run_with("b", {"x": (1.0, 0.0), "y": (1.0, 0.0)}, benchmark="m"),
        ]
    )
    assert [(row.rank, row.tier) for row in board.average] == [(1, 1), (1, 1)]


def test_what_differs_between_runs_of_a_benchmark_is_told() -> None:
    runs = [
        run_with(name, {"x": (0.5, 0.1)}, week=week, settings=(("x", said),), grader=said)
        for week, (name, said) in enumerate((("a", "hot"), ("b", "cold"), ("c", "hot")), start=1)
    ]
    settings, graders = board_of(runs).benchmarks[0].notes
    assert settings.startswith("x was asked with other settings") and settings.endswith("in a, c and b")
    assert graders == "answers were graded in different ways in a, c and b"


def test_benchmarks_that_are_nearly_one_are_told() -> None:
    texts = [frozenset(f"question {number}" for number in range(first, first + 30)) for first in (0, 5, 100)]
    runs = [
        run_with(name, {"x": (0.5, 0.1)}, benchmark=name, texts=known) for name, known in zip("abc", texts, strict=True)
    ]
    (note,) = board_of(runs).notes
    assert note == "a and b share 25 questions and stand apart: neither has exactly the questions of the other"


# -- read from directories -------------------------------------------------------------------------------------------


@pytest.fixture
def weeks(site: Site, ended_runs: EndedRuns) -> Path:
    """A folder with three runs of two benchmarks."""
    folder = site.folder / "runs"
    for name, changes in (
        ("first", {}),
        ("second", {"seed": 3}),
        ("shorter", {"questions": {"path": "questions.jsonl", "limit": 5}}),
    ):
        ended_runs.copy(site, folder / name, trials={"min": 12, "max": 12}, **changes)
    return folder


def test_runs_of_the_same_questions_are_of_one_benchmark(weeks: Path) -> None:
    board = board_of(*gather([weeks]))
    assert [(one.questions, [run.name for run in one.runs]) for one in board.benchmarks] in (
        [(8, ["first", "second"]), (5, ["shorter"])],
        [(8, ["second", "first"]), (5, ["shorter"])],
    )
    results = read_view(weeks / "shorter").results
    assert results is not None
    told = [(row.model, row.rank, row.tier, row.score, row.sampled_sigma) for row in board.benchmarks[1].models]
    assert told == [(row.name, row.rank, row.tier, row.score, row.sampled_sigma) for row in results.models]
    assert {row.model for row in board.average} == set(MODELS) and board.no_average is None
    assert "share 5 questions" in board.notes[0]


def test_questions_that_are_put_differently_are_another_benchmark(site: Site, ended_runs: EndedRuns) -> None:
    folder = site.folder / "runs"
    for name, prompt in (("plain", {}), ("thinks", {"prompt": {"template": "Think first. {prompt}"}})):
        ended_runs.copy(site, folder / name, trials={"min": 2, "max": 2}, **prompt)
    board = board_of(*gather([folder]))
    assert sorted((one.name, [run.name for run in one.runs]) for one in board.benchmarks) == [
        ("plain", ["plain"]),
        ("thinks", ["thinks"]),
    ]
    (note,) = [one for one in board.notes if "share" in one]
    assert note.endswith(
        "share 8 questions and stand apart: their questions were put to models in different ways (prompt)"
    )


def test_a_directory_counts_once_and_names_are_told_apart(weeks: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "again").symlink_to(weeks / "first")
    runs, _ = gather([weeks, weeks / "first", tmp_path / "other"])
    assert sorted(run.line.name for run in runs) == ["first", "second", "shorter"]
    (weeks / "second").rename(tmp_path / "other" / "first")
    runs, _ = gather([weeks, tmp_path / "other" / "first"])
    assert sorted(run.line.name for run in runs) == ["other/first", "runs/first", "runs/shorter"]


def damaged(kind: str, run: Path) -> None:
    """Make something else of a run."""
    database = run / DATABASE_FILE
    if kind == "text":
        database.write_text("no database")
    elif kind == "empty":
        database.write_bytes(b"")
    elif kind == "cut":
        database.write_bytes(database.read_bytes()[:9000])
    elif kind == "directory":
        database.unlink()
        database.mkdir()
    elif kind == "foreign":
        database.unlink()
        with closing(sqlite3.connect(database)) as other:
            other.execute("CREATE TABLE trials (a)")
    elif kind == "results":
        path = run / "results.json"
        whole = json.loads(path.read_text())
        del whole["checksum"]
        whole["models"][0]["name"] = "someone else"
        path.write_text(json.dumps(whole, separators=(",", ":")) + "\n")
    else:
        with closing(sqlite3.connect(database)) as other, other:
            other.execute("UPDATE configurations SET body = '{\"models\": 3}'")
            without_checksums(other)


@pytest.mark.parametrize("kind", ["text", "empty", "cut", "directory", "foreign", "results", "configuration"])
def test_what_cannot_be_read_is_left_out_of_a_folder_and_refused_by_name(weeks: Path, kind: str) -> None:
    damaged(kind, weeks / "second")
    runs, unread = gather([weeks])
    assert sorted(run.line.name for run in runs) == ["first", "shorter"]
    ((name, why),) = [(one.name, one.why) for one in unread]
    assert name == "second" and why and str(weeks) not in why
    told = CliRunner().invoke(app, ["board", str(weeks)])
    assert told.exit_code == 0 and "second is left out" in " ".join(told.stdout.split())
    refused = CliRunner().invoke(app, ["board", str(weeks / "first"), str(weeks / "second")])
    assert refused.exit_code in (1, 2) and refused.stderr.startswith("error: ") and not refused.stdout


def test_a_place_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no run and has none in it; name the directories"):
        gather([tmp_path])
    with pytest.raises(StoreError, match="is no directory"):
        gather([tmp_path / "nowhere"])
