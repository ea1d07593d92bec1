"""Figures of a run, as SVG and PNG: drawn by matplotlib, from the extra `plots`.

The colours are those of Okabe and Ito, which are safe for colour-blind readers, and never the only difference between
two lines. A model has the same colour in all figures.

Figures over looks are first computed as plain series.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptive_eval.base.files import make_folder, write_atomic
from adaptive_eval.base.imports import load_extra
from adaptive_eval.base.roster import Names
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.report.finding import has_tiers, state_word
from adaptive_eval.report.lines import safe_name
from adaptive_eval.report.rescore import Rescoring
from adaptive_eval.report.view import RunView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class PairPath(NamedTuple):
    """One comparison over the looks: z in favour of the model that is ahead at the end, and the boundary."""

    first: str
    second: str | None
    trials: tuple[int, ...]
    """Trials of all models at each look that judged the pair."""
    z: tuple[float | None, ...]
    boundary: tuple[float | None, ...]
    state: str
    """State at the last look, as displays write it."""


class RankPath(NamedTuple):
    """Place of one model at each look: 1 for the best, None without a score."""

    model: str
    places: tuple[int | None, ...]


def pair_paths(view: RunView) -> list[PairPath]:
    """Paths of all pairs that the last look compares, as far back as they were compared."""
    if not view.looks:
        return []
    gate = {} if view.results is None else {row.model: row.outcome for row in view.results.gate}
    paths = []
    for last in view.looks[-1].pairs:
        trials, z, boundary = [], [], []
        for look in view.looks:
            for pair in look.pairs:
                if {pair.first, pair.second} == {last.first, last.second}:
                    turned = -1.0 if pair.first != last.first else 1.0
                    trials.append(sum(look.trials))
                    z.append(None if pair.z is None else turned * pair.z)
                    boundary.append(pair.boundary)
        state = state_word(gate.get(last.first, gate.get(str(last.second), last.verdict)))
        paths.append(PairPath(last.first, last.second, tuple(trials), tuple(z), tuple(boundary), state))
    return paths


def width_paths(view: RunView, half_width: float) -> list[PairPath]:
    """Paths for the objective precision: half widths of the scores' 95% intervals instead of z, and `half_width`."""
    paths = []
    for last in view.looks[-1].pairs if view.looks else ():
        seen = [(look, look.sigmas[look.models.index(last.first)]) for look in view.looks if last.first in look.models]
        trials = tuple(sum(look.trials) for look, _ in seen)
        half = tuple(None if sigma is None else TWO_SIDED_95 * sigma for _, sigma in seen)
        paths.append(PairPath(last.first, None, trials, half, (half_width,) * len(seen), state_word(last.verdict)))
    return paths


def rank_paths(view: RunView) -> list[RankPath]:
    """Place of each model at each look, and in the final ranking if it differs; sorted by the last place, with models
    without a score at the end."""
    orders = [Names(look.order) for look in view.looks]
    ranked = Names(models_in_order(view))
    orders += [ranked] if view.results is not None and orders and ranked != orders[-1] else []
    paths = [
        RankPath(name, tuple(order.position(name) + 1 if name in order else None for order in orders))
        for name in view.models
    ]
    return sorted(paths, key=lambda path: path.places[-1] or len(view.models) + 1)


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
MAX_PATHS = 9
"""Comparisons in one figure: those nearest to their boundary."""
MAX_NAME = 28
FORMATS = ("svg", "png")
WRITE_HINT = "Fix that, or give --plots another folder"
STYLE: Any = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "adaptive-eval",  # equal runs give equal files
    "figure.constrained_layout.use": True,
}


def draw_all(view: RunView, folder: Path) -> list[Path]:
    """Draw all figures into `folder`; none before the first look.

    After all answers were regraded there are results, but no looks until the run goes on.
    """
    if view.results is None:
        return []
    paths = []
    with styled():
        make_folder(folder, WRITE_HINT)
        for name, draw in (FIGURES | OVER_LOOKS if view.looks else FIGURES).items():
            paths += save_figure(draw(view), folder, name, WRITE_HINT)
        if view.rescored is not None:
            paths += save_figure(rank_by_rubric(view.rescored, models_in_order(view)), folder, RUBRICS, WRITE_HINT)
    return paths


def save_figure(figure: Figure, folder: Path, name: str, hint: str) -> list[Path]:
    """Save a figure in every format; `hint` says what to do if it cannot be written."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not again for each format
    paths = []
    for kind in FORMATS:
        path = folder / f"{name}.{kind}"
        drawn = BytesIO()
        figure.savefig(drawn, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
        write_atomic(path, drawn.getvalue(), hint)
        paths.append(path)
    return paths


def intervals(view: RunView) -> Figure:
    """Scores with 95% intervals, best on top; models of a tier share a band (a gate or pick has no tiers)."""
    assert view.results is not None
    without_tiers = not has_tiers(view.results)
    rows = [row for row in view.results.models if row.score is not None]
    figure, axes = _figure(0.32 * len(rows) + 1.0)
    for place, row in enumerate(rows):
        assert row.score is not None and row.lo is not None and row.hi is not None and row.tier is not None
        if row.tier % 2 and not without_tiers:
            axes.axhspan(place - 0.5, place + 0.5, color="#000000", alpha=0.05, linewidth=0)
        drawn: Any = {"color": colour(models_in_order(view).index(row.name)), "linewidth": 1.6}
        axes.plot([row.lo, row.hi], [place, place], **drawn)
        axes.plot(row.score, place, "o", markersize=4.5, **drawn)
    tiers = ("" if without_tiers else f"  ·  tier {row.tier}" for row in rows)
    axes.set_yticks(range(len(rows)), [plain_name(row.name) + tier for row, tier in zip(rows, tiers, strict=True)])
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_xlabel("score, with its 95% interval on these questions")
    axes.grid(axis="x", alpha=0.3)
    return figure


def z_trajectories(view: RunView) -> Figure:
    """z of the compared pairs and their boundary over the trials; for precision, half of the intervals' widths."""
    half_width = view.objective.half_width
    all_paths = pair_paths(view) if half_width is None else width_paths(view, half_width)
    paths = sorted(all_paths, key=_boundary_distance)[:MAX_PATHS]
    columns = min(3, len(paths))
    lines = -(-len(paths) // columns) if columns else 1
    figure, all_axes = grid(lines, max(columns, 1))
    for axes, path in zip(all_axes, paths, strict=False):
        _draw_path(axes, path, signed=half_width is None)
    for axes in all_axes[len(paths) :]:
        axes.set_visible(False)
    figure.supxlabel("trials of all models", fontsize=9)
    # in two lines, since one is longer than a figure of one row is high
    what = (
        ("z, and the boundary", "that decides the pair")
        if half_width is None
        else ("half of the 95% interval", "and its target")
    )
    figure.supylabel(f"{what[0]}\n{what[1]} (dashed)", fontsize=9)
    return figure


def rank_trajectories(view: RunView) -> Figure:
    """Place of each model at each look."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = _figure(0.3 * len(view.models) + 1.4)
    trials = [sum(look.trials) for look in view.looks]
    paths = rank_paths(view)
    if view.results is not None and paths and len(paths[0].places) > len(trials):
        trials.append(sum(row.trials for row in view.results.models if row.recorded is None))
    for path in paths:
        at = models_in_order(view).index(path.model)
        ranked = [(x, place) for x, place in zip(trials, path.places, strict=True) if place is not None]
        if ranked:
            xs, ys = zip(*ranked, strict=True)
            drawn: Any = {"color": colour(at), "linestyle": line_style(at), "linewidth": 1.4, **lone_point(xs)}
            axes.step(xs, ys, where="post", **drawn)
            axes.annotate(
                plain_name(path.model), (xs[-1], ys[-1]), (6, 0), textcoords="offset points", va="center", fontsize=8
            )
    axes.set_ylim(len(view.models) + 0.5, 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("trials of all models")
    axes.set_ylabel("place")
    return figure


def heat_map(view: RunView) -> Figure:
    """Trials by model and question."""
    assert view.results is not None
    order = [view.models.index(row.name) for row in view.results.models]
    figure, axes = _figure(0.26 * len(order) + 1.6)
    image = axes.imshow([view.trials[model] for model in order], aspect="auto", cmap="cividis", interpolation="nearest")
    axes.set_yticks(range(len(order)), [plain_name(view.models[model]) for model in order])
    axes.set_xlabel("question, in the order of the run")
    figure.colorbar(image, ax=axes, label="trials")
    return figure


def rank_by_rubric(rescoring: Rescoring, order: Sequence[str]) -> Figure:
    """Rank of each model under each rubric (paper, Figure 7), with colours by this order."""
    from matplotlib.ticker import MaxNLocator

    models = [model.name for model in rescoring.rubrics[0].models]
    figure, axes = _figure(0.3 * len(models) + 2.2)
    for at, name in enumerate(models):
        ranks = [_or_nan(rubric.models[at].rank) for rubric in rescoring.rubrics]
        position = order.index(name)
        drawn: Any = {"color": colour(position), "linestyle": line_style(position), "linewidth": 1.4}
        axes.plot(range(len(ranks)), ranks, "o", markersize=3.5, **drawn)
        if ranks[-1] == ranks[-1]:
            place = (len(ranks) - 1, ranks[-1])
            axes.annotate(plain_name(name), place, (8, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xticks(
        range(len(rescoring.rubrics)),
        [plain_name(rubric.name) for rubric in rescoring.rubrics],
        rotation=35,
        ha="right",
    )
    axes.set_ylim(len(models) + 0.5, 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("rank")
    axes.grid(axis="x", alpha=0.3)
    return figure


RUBRICS = "rubrics"
FIGURES: dict[str, Callable[[RunView], Figure]] = {"intervals": intervals, "trials": heat_map}
OVER_LOOKS: dict[str, Callable[[RunView], Figure]] = {"z": z_trajectories, "ranks": rank_trajectories}


def _draw_path(axes: Axes, path: PairPath, *, signed: bool) -> None:
    """Draw one comparison; `signed` if either side may win."""
    boundary = [_or_nan(value) for value in path.boundary]
    limit: Any = {"color": "#444444", "linestyle": "--", "linewidth": 1.0, **lone_point(path.trials, "_", 14.0)}
    axes.plot(path.trials, boundary, **limit)
    if signed:
        axes.plot(path.trials, [-value for value in boundary], **limit)
    z = [_or_nan(value) for value in path.z]
    axes.plot(path.trials, z, color="#000000", linewidth=1.6, **lone_point(path.trials))
    axes.axhline(0.0, color="#999999", linewidth=0.6)
    against = "\nagainst the value" if signed else ""
    if path.second is not None:
        against = f"\nover {plain_name(path.second)}"
    axes.set_title(f"{plain_name(path.first)}{against}: {path.state}", fontsize=7.5)
    axes.tick_params(labelsize=7)


def _boundary_distance(path: PairPath) -> float:
    """Distance of a comparison from its boundary."""
    z, boundary = path.z[-1], path.boundary[-1]
    return abs(boundary - abs(z)) if z is not None and boundary is not None else float("inf")


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def plain_name(name: str, longest: int = MAX_NAME) -> str:
    """Escape a name for matplotlib, which reads text between dollars as a formula."""
    return safe_name(name, longest).replace("$", r"\$")


def lone_point(points: Sequence[object], marker: str = "o", size: float = 4.5) -> Any:
    """Marker for a line with a single point, as after the one look at an import, which would be invisible."""
    return {"marker": marker, "markersize": size} if len(points) == 1 else {}


def models_in_order(view: RunView) -> list[str]:
    """Models from best to worst; their places give them the same colours in all figures."""
    return list(view.models) if view.results is None else [row.name for row in view.results.models]


def colour(at: int) -> str:
    """Colour of the line at this place."""
    return COLOURS[at % len(COLOURS)]


def line_style(at: int) -> str:
    """Dashes of the line at this place."""
    return STYLES[at // len(COLOURS) % len(STYLES)]


def _figure(height: float) -> tuple[Figure, Axes]:
    figure, (axes,) = grid(1, 1, height)
    return figure, axes


def grid(
    lines: int, columns: int, height: float | None = None, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Any]]:
    """Create a figure with its axes line by line; `ratios` are relative heights of the lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 2.0 * lines + 0.4 if height is None else height))
    return figure, list(figure.subplots(lines, columns, squeeze=False, height_ratios=ratios).flat)


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style of all figures."""
    mpl = load_extra("matplotlib", "plots", "plots")
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # names with letters that the font lacks
        yield
