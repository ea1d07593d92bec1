"""Two runs compared: changes are found, and what is the same is not reported."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import typed
from live_runs import MODELS, EndedRuns, Site

from adaptive_eval.config.fingerprint import differences
from adaptive_eval.report.shared_answers import SharedAnswers
from adaptive_eval.report.stored import RunCounts, read_counts
from adaptive_eval.report.view import RunView, read_view
from adaptive_eval.show.changes import diff_runs
from adaptive_eval.show.changes_shown import changes_blocks
from adaptive_eval.show.markdown import markdown
from adaptive_eval.show.text import as_text

TRIALS = {"min": 12, "max": 12}


RunAs = Callable[..., Path]


@pytest.fixture
def run_as(site: Site, ended_runs: EndedRuns) -> RunAs:
    """A finished run of that name."""

    def run(name: str, **settings: object) -> Path:
        return ended_runs.copy(site, site.folder / name, **({"trials": TRIALS} | settings))

    return run


@pytest.mark.slow
def test_a_run_compared_with_itself_has_not_changed(run_as: RunAs) -> None:
    directory = run_as("a")
    view, counts = read_view(directory), read_counts(directory)
    diff = diff_runs(view, counts, view, counts)
    assert [model.difference for model in diff.models] == [0.0] * len(MODELS)
    assert all(model.p == 1.0 and model.lo < 0.0 < model.hi for model in diff.models)
    assert not diff.questions_changed and not diff.verdicts and not diff.settings
    assert not diff.caveats
    (caveat,) = diff_runs(view, counts, view, counts, SharedAnswers(1)).caveats
    assert caveat.startswith("1 answer counts in both runs")


def test_counts_are_those_of_the_results(run_as: RunAs) -> None:
    directory = run_as("a")
    view, counts = read_view(directory), read_counts(directory)
    assert view.results is not None
    for row in view.results.models:
        cells = counts.of([row.name], tuple(counts.roster.questions)).cells[0]
        assert (cells[:, 1] / cells.sum(axis=1)).mean() == pytest.approx(row.score)


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [None, 2], ids=["others' servers", "GPUs that are paid for"])
def test_a_report_shows_server_time_where_it_is_paid_for(site: Site, run_as: RunAs, gpus: int | None) -> None:
    models = [{"name": name, "base_url": site.base_url} | ({"gpus": gpus} if gpus else {}) for name in MODELS]
    view = read_view(run_as("a", models=models))
    assert view.results is not None and view.results.cost.server_seconds
    assert ("server time" in markdown(view)) == (gpus is not None)


@pytest.mark.slow
def test_settings_and_models_that_differ_are_listed_once(site: Site, run_as: RunAs) -> None:
    first, second = run_as("a"), run_as("b", seed=3, models=site.config()["models"][:2])  # type: ignore[index]
    diff = diff_runs(read_view(first), read_counts(first), read_view(second), read_counts(second))
    assert diff.caveats == ("1 model only in the first run: cyd",)
    assert ("seed", 0, 3) in [tuple(change) for change in diff.settings]
    hot = [{"name": name, "base_url": site.base_url} for name in MODELS]
    hot[1]["sampling"] = {"temperature": 0.1, "max_tokens": 2000}  # type: ignore[assignment]
    third = run_as("c", models=hot, sampling={"temperature": 0.9, "max_tokens": 2000})
    diff = diff_runs(read_view(first), read_counts(first), read_view(third), read_counts(third))
    of_bob = ("models.bob.sampling.temperature", 0.6, 0.1)
    assert [tuple(change) for change in diff.settings] == [("sampling.temperature", 0.6, 0.9), of_bob]


def test_a_setting_that_only_the_other_kind_of_grader_has_differs_only_if_it_is_set() -> None:
    judge, exact = {"kind": "judge", "votes": 3, "compare_to": None}, {"kind": "exact"}
    changes = differences({"grader": judge}, {"grader": exact})
    assert [change.path for change in changes] == ["grader.kind", "grader.votes"]


def test_the_largest_changes_come_first_where_all_p_values_are_zero(run_as: RunAs) -> None:
    directory = run_as("a")
    view, counts = read_view(directory), read_counts(directory)
    cells = np.full_like(counts.cells, 4000)
    after = cells.copy()
    after[0, :] = (3000, 5000)
    after[1, :4] = (7900, 100)
    after[2, :] = (7999, 1)
    diff = diff_runs(view, replace_cells(counts, cells), view, replace_cells(counts, after))
    assert [model.name for model in diff.models] == [MODELS[2], MODELS[1], MODELS[0]]
    assert {model.p for model in diff.models[:2]} == {0.0}
    assert [change.model for change in diff.questions_changed] == [MODELS[2]] * 8 + [MODELS[1]] * 4 + [MODELS[0]] * 8
    assert {change.adjusted_p for change in diff.questions_changed[:12]} == {0.0}
    text = as_text(changes_blocks(diff, view.weights))
    assert "  < 0.0001  " in text and "0.0000" not in text


def test_a_question_that_got_worse_is_named_and_others_are_not(run_as: RunAs) -> None:
    directory = run_as("a")
    view, counts = read_view(directory), read_counts(directory)
    cells = np.full_like(counts.cells, 40)
    after = cells.copy()
    after[0, 3] = (79, 1)
    diff = diff_runs(view, replace_cells(counts, cells), view, replace_cells(counts, after))
    (change,) = diff.questions_changed
    assert (change.model, change.question) == (MODELS[0], counts.roster.questions[3])
    assert (change.mean_a, change.mean_b) == pytest.approx((41 / 82, 2 / 82)) and change.adjusted_p < 1e-6
    assert diff.models[0].difference == pytest.approx((1 / 80 - 0.5) / 8)
    assert "q3" in as_text(changes_blocks(diff, view.weights))


@pytest.mark.slow
def test_chance_alone_names_a_question_in_one_comparison_of_twenty_at_most(run_as: RunAs) -> None:
    directory = run_as("a")
    view, counts = read_view(directory), read_counts(directory)
    rng = np.random.default_rng(5)
    named = 0
    for _ in range(100):
        p = rng.uniform(0.0, 1.0, counts.cells.shape[:2])
        a, b = (np.stack([20 - (k := rng.binomial(20, p)), k], axis=-1) for _ in range(2))
        diff = diff_runs(view, replace_cells(counts, a), view, replace_cells(counts, b))
        named += bool(diff.questions_changed)
    assert named <= 11  # 5% of 100 is 5; 3 sigma above


def test_only_common_questions_and_models_with_enough_answers_are_compared(run_as: RunAs) -> None:
    directory = run_as("a")
    view, counts = read_view(directory), read_counts(directory)
    diff = diff_runs(view, counts, replace(view, questions=view.questions[2:]), counts)
    assert diff.questions == 6 and diff.caveats == ("2 questions only in the first run: q0, q1",)
    first, second, *others = view.questions
    without_text, other = replace(first, prompt="", answer=""), replace(second, prompt="another one")
    diff = diff_runs(view, counts, replace(view, questions=(without_text, other, *others)), counts)
    assert diff.caveats == ("1 question with the same id, but another prompt or answer: q1",)
    cells = counts.cells.copy()
    cells[1, 2] = 0
    diff = diff_runs(view, counts, view, replace_cells(counts, cells))
    assert MODELS[1] not in {change.name for change in diff.models}
    assert f"one of the runs has too few answers: {MODELS[1]}" in as_text(changes_blocks(diff, view.weights))


@pytest.mark.slow
def test_outcomes_that_two_runs_may_share_are_mentioned(run_as: RunAs) -> None:
    first = run_as("a")
    second = run_as("b", seed=3, prior={"run": str(first)})
    diff = diff_runs(read_view(first), read_counts(first), read_view(second), read_counts(second))
    text = as_text(changes_blocks(diff, (0.0, 1.0)))
    assert "outcomes of an earlier run (R0) count in the scores of b: " in text
    assert "(R0)" not in as_text(changes_blocks(diff_runs(*[read_view(first), read_counts(first)] * 2), (0.0, 1.0)))


@pytest.mark.slow
def test_answers_that_an_import_shares_with_its_run_are_mentioned(site: Site, run_as: RunAs) -> None:
    first, other = run_as("a"), run_as("b", seed=3)
    number = sum(int(row.trials) for row in read_view(first).results.models)  # type: ignore[union-attr]

    def compared(run: Path, *also: str) -> str:
        return " ".join(typed("compare", first, run, *also, code=0).stdout.split())

    for kind, sentence in (
        ("csv", f"{number} answers count in both runs"),
        ("npz", "logs without times were imported"),
    ):
        table, place = site.folder / f"t.{kind}", site.folder / kind
        typed("export", first, "--format", kind, "-o", table, code=0)
        typed("import", table, "--to", place, code=0)
        assert sentence in compared(place) and "the intervals are too wide" in compared(place)
    assert f"{number} answers count in both runs" in compared(first)
    assert "the intervals are too wide" not in compared(other)


def test_a_benchmark_is_compared_by_its_name_and_other_weights_are_mentioned(run_as: RunAs) -> None:
    """Each question is a benchmark here."""
    directory = run_as("a")
    view, counts = read_view(directory), read_counts(directory)

    def weighed(weight: float) -> RunView:
        parts = [{"name": one.id, "weight": weight if one.id == "q3" else 1.0} for one in view.questions]
        return replace(view, configuration={**view.configuration, "benchmarks": parts})

    first, second = weighed(1.0), weighed(8.0)
    diff = diff_runs(first, counts, second, counts)
    assert [tuple(change) for change in diff.settings] == [("benchmarks.q3.weight", 1.0, 8.0)]
    shown = as_text(changes_blocks(diff, (0.0, 1.0)))
    assert "scores of both runs have the benchmark weights of the second run" in shown
    same = diff_runs(second, counts, second, counts)
    assert not same.settings and "benchmark weights" not in as_text(changes_blocks(same, (0.0, 1.0)))


@pytest.mark.slow
def test_the_command_names_runs_by_their_folders(site: Site, run_as: RunAs, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = run_as("a"), run_as("b", seed=3)
    result = typed("compare", first, second)
    assert result.exit_code == 0 and "3 questions" not in result.stdout and "on the 8 questions" in result.stdout
    assert result.stdout.startswith("a → b\n")
    monkeypatch.chdir(second)
    assert typed("compare", "../a", ".").stdout.startswith("a → b\n")
    monkeypatch.undo()
    second = second.rename(site.folder / "c")
    moved = typed("compare", first, second).stdout
    assert moved.startswith(f"{first} → {second}\n"), "another run may lie in a folder named b"
    path = site.folder / "c.json"
    typed("compare", first, second, "--format", "json", "--output", path)
    written = json.loads(path.read_text())
    assert written["format"] == "adaptive-eval.comparison/1"
    assert written["changes"]["settings"] == [{"path": "seed", "was": 0, "now": 3}]


@pytest.mark.slow
def test_other_rubrics_questions_and_models_cannot_be_compared(site: Site, run_as: RunAs) -> None:
    first = run_as("a")
    right = {"name": "right", "weight": 2, "when": {"is_correct": True}}
    other = run_as("b", rubric={"categories": [{"name": "wrong", "weight": 0}, right]})
    result = typed("compare", first, other)
    assert result.exit_code == 2 and f"{first} and {other} have different rubrics" in " ".join(result.stderr.split())
    assert "right 2" in result.stderr
    renamed = {"eve": "ada", "fay": "bob"}.items()
    third = run_as("c", models=[{"name": name, "model": model, "base_url": site.base_url} for name, model in renamed])
    assert "no model in common" in typed("compare", first, third, code=2).stderr


def replace_cells(counts: RunCounts, cells: np.ndarray) -> RunCounts:
    return RunCounts(counts.roster, cells, np.zeros_like(cells))


@pytest.mark.slow
def test_a_gate_is_compared_by_its_outcomes_and_differences_are_points(run_as: RunAs) -> None:
    directory = run_as("a", objective={"kind": "baseline", "baseline": MODELS[-1], "gate": True})
    view, counts = read_view(directory), read_counts(directory)
    assert view.results is not None
    first, *others = view.results.gate
    outcome = {"PASS": "FAIL", "FAIL": "PASS", "UNDECIDED": "PASS"}[first.outcome]
    other = replace(view, results=replace(view.results, gate=(replace(first, outcome=outcome), *others)))
    diff = diff_runs(view, counts, other, counts)
    assert [(verdict.verdict_a, verdict.verdict_b) for verdict in diff.verdicts] == [(first.outcome, outcome)]
    text = as_text(changes_blocks(diff, view.weights))
    assert "resolved" not in text and f"  {first.outcome} " in text and " 0.0 points " in text
