"""Series and figures of a run."""

import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from live_runs import MODELS, EndedRuns, Site
from matplotlib.backends.backend_svg import FigureCanvasSVG
from page_views import simulated, world
from typer.testing import CliRunner

from adaptive_eval.base.errors import StoreError
from adaptive_eval.cli import app
from adaptive_eval.report.view import LookView, RunView, read_view
from adaptive_eval.show.plots import (
    FIGURES,
    MAX_NAME,
    OVER_LOOKS,
    RUBRICS,
    draw_all,
    pair_paths,
    plain_name,
    rank_paths,
    styled,
    width_paths,
)


@pytest.fixture
def view(site: Site, ended_runs: EndedRuns) -> RunView:
    return read_view(ended_runs.copy(site))


@pytest.mark.slow
def test_a_path_keeps_its_sign_when_the_order_turns(view: RunView) -> None:
    paths = pair_paths(view)
    assert {frozenset((path.first, path.second)) for path in paths} == {
        frozenset((pair.first, pair.second)) for pair in view.looks[-1].pairs
    }
    for path in paths:
        for trials, z in zip(path.trials, path.z, strict=True):
            look = next(look for look in view.looks if sum(look.trials) == trials)
            ahead = look.order.index(path.first) < look.order.index(str(path.second))
            assert z is not None and (z >= 0.0) == ahead


@pytest.mark.slow
def test_precision_has_widths_in_the_place_of_z(site: Site, ended_runs: EndedRuns) -> None:
    ended_runs.copy(site, objective={"kind": "precision", "half_width": "12%"})
    view = read_view(site.directory())
    assert view.results is not None and view.objective.half_width == 0.12
    assert all(pair.z is None and pair.boundary is None for look in view.looks for pair in look.pairs)
    rows = {row.name: row for row in view.results.models}
    paths = width_paths(view, 0.12)
    assert {path.first for path in paths} == set(MODELS)
    for path in paths:
        last, row = path.z[-1], rows[path.first]
        assert last is not None and row.hi is not None and row.score is not None
        assert last == pytest.approx(row.hi - row.score) and len(path.trials) == len(view.looks)
        assert set(path.boundary) == {0.12} and (path.state == "resolved") == (last <= 0.12)
    with styled():
        written = [
            artist.get_text() for artist in OVER_LOOKS["z"](view).findobj(lambda item: hasattr(item, "get_text"))
        ]
    assert any("half of the 95% interval" in text for text in written)


@pytest.mark.slow
def test_a_path_of_a_gate_ends_in_its_outcome() -> None:
    objective = {"kind": "baseline", "baseline": "d", "gate": True}
    view = simulated(world("abcdefgh", 8), objective=objective, stopping={"delta": "4%"})
    assert view.results is not None
    outcomes = {row.model: row.outcome for row in view.results.gate}
    paths = pair_paths(view)
    assert len(paths) == len(outcomes) == 7
    assert all(path.state == outcomes[path.first if path.second == "d" else str(path.second)] for path in paths)
    with styled():
        labels = [label.get_text() for label in FIGURES["intervals"](view).axes[0].get_yticklabels()]
    assert labels == [row.name for row in view.results.models], "nobody stands in a tier"


def test_ranks_end_where_the_run_ended(view: RunView) -> None:
    paths = rank_paths(view)
    assert [path.model for path in paths] == list(view.looks[-1].order)
    assert [path.places[-1] for path in paths] == list(range(1, len(paths) + 1))


def test_ranks_end_as_the_table_has_them_after_answers_asked_ahead(view: RunView) -> None:
    assert view.results is not None
    first, second, *others = view.results.models
    turned = replace(view, results=replace(view.results, models=(second, first, *others)))
    paths = rank_paths(turned)
    assert [path.model for path in paths] == [row.name for row in (second, first, *others)]
    assert paths[0].places[-2:] == (2, 1) and len(paths[0].places) == len(view.looks) + 1


@pytest.mark.slow
def test_every_figure_is_drawn_in_both_formats_and_the_same_each_time(view: RunView, tmp_path: Path) -> None:
    paths = draw_all(view, tmp_path / "once")
    assert {path.name for path in paths} == {
        f"{name}.{kind}" for name in FIGURES | OVER_LOOKS for kind in ("svg", "png")
    }
    again = draw_all(view, tmp_path / "twice")
    for path in again:
        assert path.read_bytes() == (tmp_path / "once" / path.name).read_bytes()
    text = (tmp_path / "once" / "intervals.svg").read_text()
    assert all(name in text for name in MODELS)


@pytest.mark.slow
def test_hostile_names_are_drawn_as_they_are(view: RunView, tmp_path: Path) -> None:
    assert view.results is not None
    names = {"ada": r"$\frac{", "bob": "</svg><script>", "cyd": "模型\x1b\u202e"}
    rows = tuple(replace(row, name=names[row.name]) for row in view.results.models)
    hostile = replace(view, results=replace(view.results, models=rows), models=tuple(names.values()))
    looks = tuple(
        replace(look, models=tuple(names.values()), order=tuple(names[name] for name in look.order), pairs=())
        for look in view.looks
    )
    draw_all(replace(hostile, looks=looks), tmp_path)
    for path in tmp_path.glob("*.svg"):
        assert "<script" not in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES | OVER_LOOKS)
def test_models_that_are_listed_in_another_order_give_the_same_figure(view: RunView, name: str) -> None:
    def turned(seen: Any, *fields: str) -> Any:
        return replace(seen, **{field: getattr(seen, field)[::-1] for field in fields})

    looks = tuple(turned(look, "models", "trials", "tiers", "scores", "sigmas") for look in view.looks)
    other = replace(turned(view, "models", "trials", "posterior_of", "traffic"), looks=looks)
    drawn = []
    for seen in (view, other):
        with styled():
            drawn.append(BytesIO())
            FigureCanvasSVG((FIGURES | OVER_LOOKS)[name](seen)).print_svg(drawn[-1], metadata={"Date": None})
    assert view.models != other.models and drawn[0].getvalue() == drawn[1].getvalue()


def test_what_is_known_of_a_model_is_drawn_beside_its_name(view: RunView) -> None:
    assert view.results is not None
    first, second, last = view.results.models
    assert first.lo is not None
    first = replace(first, lo=first.lo - 0.01)  # the ends of an interval need not be equally far
    lost = replace(last, **dict.fromkeys(("score", "sigma", "lo", "hi", "bayes", "bayes_sigma")))
    shown = replace(view, results=replace(view.results, models=(first, second, lost)))
    with styled():
        scores, trials = (FIGURES[name](shown).axes[0] for name in ("intervals", "trials"))
        ranks = OVER_LOOKS["ranks"](view).axes[0]
    names = [label.get_text().split()[0] for label in scores.get_yticklabels()]
    assert names == [first.name, second.name], "what has no score is not drawn as 0"
    ends = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in scores.lines]
    for place, row in enumerate((first, second)):
        assert ends[2 * place : 2 * place + 2] == [([row.lo, row.hi], [place, place]), ([row.score], [place])]
    assert len(ends) == 4
    names = [label.get_text() for label in trials.get_yticklabels()]
    counts = dict(zip(names, trials.images[0].get_array().tolist(), strict=True))
    assert counts == {name: [*row] for name, row in zip(view.models, view.trials, strict=True)}
    assert [text.get_text() for text in sorted(ranks.texts, key=lambda text: text.xy[1])] == [
        row.name for row in view.results.models
    ]


def test_names_are_no_formulas_and_keep_apart_where_only_their_ends_differ() -> None:
    assert plain_name("$a^2$") == r"\$a^2\$"
    assert len(plain_name("x" * 300)) <= MAX_NAME and plain_name("\x1b[2J\u202e").isprintable()
    assert len({plain_name(f"organisation/{'a-model-' * 5}step-{number}000") for number in range(4)}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("without", [3, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))])
def test_every_figure_is_drawn_where_models_have_no_score(view: RunView, without: int) -> None:
    """A model that never answered has no score; where no server answered, no model has."""
    assert view.results is not None and len(view.results.models) == 3
    unknown = {"score": None, "sigma": None, "lo": None, "hi": None, "bayes": None, "bayes_sigma": None}
    rows = list(view.results.models)
    rows[-without:] = [replace(row, **unknown) for row in rows[-without:]]
    shown = replace(view, results=replace(view.results, models=tuple(rows)))
    for draw in (FIGURES | OVER_LOOKS).values():
        with styled():
            draw(shown).draw_without_rendering()


def test_nothing_is_drawn_before_the_first_look(view: RunView, tmp_path: Path) -> None:
    assert draw_all(replace(view, results=None, looks=()), tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_nothing_is_written_where_the_extra_is_missing(
    view: RunView, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ended = CliRunner().invoke(app, ["report", str(site.directory()), "--plots", str(tmp_path / "figures")])
    assert ended.exit_code == 2 and "adaptive-eval[plots]" in ended.stderr and ended.stdout == ""
    assert not (site.directory() / "report.html").exists() and not (tmp_path / "figures").exists()


def test_a_place_that_cannot_hold_them_is_an_error(view: RunView, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="--plots"):
            draw_all(view, place)


@pytest.mark.slow
def test_a_run_that_was_graded_again_has_figures_of_its_results_alone(
    site: Site, ended_runs: EndedRuns, tmp_path: Path
) -> None:
    ended_runs.copy(site, trials={"min": 4, "max": 4})
    config = site.write(grader="exact", trials={"min": 4, "max": 4})
    assert CliRunner().invoke(app, ["regrade", str(site.directory()), "--config", str(config)]).exit_code == 0
    result = CliRunner().invoke(app, ["report", str(site.directory()), "--plots", str(tmp_path / "figures")])
    assert result.exit_code == 0, result.output
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {f"{name}.{kind}" for name in (*FIGURES, *OVER_LOOKS, RUBRICS) for kind in ("svg", "png")}
    assert CliRunner().invoke(app, ["report", str(site.directory()), "--format", "md"]).exit_code == 0


@pytest.mark.slow
def test_ticks_of_ranks_are_whole_and_no_label_is_cut(view: RunView) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    long = {name: f"{name} " + "long-name-" * 6 for name in view.models}
    few = replace(view, looks=tuple(_renamed(look, long) for look in view.looks))
    for seen in (view, few):
        for draw in (OVER_LOOKS["z"], OVER_LOOKS["ranks"]):
            with styled():
                figure = draw(seen)
                canvas = FigureCanvasAgg(figure)
                canvas.draw()
                if draw is OVER_LOOKS["ranks"] and seen is view:
                    assert all(float(tick).is_integer() for tick in figure.axes[0].get_yticks())
                texts = [axes.title for axes in figure.axes if axes.get_visible() and axes.get_title()]
                texts += [text for text in (figure._supxlabel, figure._supylabel) if text is not None]
                for text in texts:
                    box, edges = text.get_window_extent(), figure.bbox
                    assert box.x0 >= -0.5 and box.x1 <= edges.x1 + 0.5, text.get_text()
                    assert box.y0 >= -0.5 and box.y1 <= edges.y1 + 0.5, text.get_text()


def _renamed(look: LookView, names: dict[str, str]) -> LookView:
    """The last comparison alone, so that the figure has one row, under other names."""
    pairs = tuple(
        replace(pair, first=names[pair.first], second=None if pair.second is None else names[pair.second])
        for pair in look.pairs
    )
    return replace(look, pairs=pairs)


def test_figures_of_a_single_look_have_markers(view: RunView) -> None:
    """As after an import: a line through one point has no length, so each has a marker."""
    first = replace(view, looks=view.looks[:1])
    with styled():
        for name, draw in OVER_LOOKS.items():
            lines = [line for axes in draw(first).axes for line in axes.get_lines() if len(line.get_xdata()) == 1]
            assert lines, name
            assert {line.get_marker() for line in lines} <= {"o", "_"}, name
