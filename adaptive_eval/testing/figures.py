"""What every figure of a run keeps to: each mark stands by the name of its model, whatever the models are called."""

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_eval.record.results import ModelRow, Results
from adaptive_eval.record.view import LookView, RunView, read_view
from adaptive_eval.show.plots import LONGEST_NAME, styled
from adaptive_eval.testing.runs import fail_unless
from adaptive_eval.testing.stored import stored_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Draw = Callable[[RunView], Figure]

HOSTILE = (r"$\frac{", "$a^2$", "\x1b[2J\u202e", "x" * 300)
"""Names of models that mean something else to whatever draws them, or are far too long."""
UNKNOWN: Mapping[str, Any] = dict.fromkeys(("score", "sigma", "lo", "hi", "bayes", "bayes_sigma"))
"""Of a model that never answered."""
OF_A_LOOK = ("models", "trials", "tiers", "scores", "sigmas")
OF_A_VIEW = ("models", "trials", "posterior_of", "traffic")
"""What is in the order of the configuration."""
CODE = re.compile(r"[A-Za-z]_[A-Za-z]|[a-z][A-Z]|^[^A-Za-z]*$")
"""Words of a program, and what holds no word at all."""


def check_figure(draw: "Draw", name: str | None = None) -> None:
    """Raise AssertionError unless the figure keeps to its contract.

    Args:
        draw: Makes the figure of a view.
        name: That of its file; default: that of the function.

    Raises:
        AssertionError: It does not; the message says what is broken.

    Example:
        A function of your own, which is drawn with names, orders and counts that figures often fail on:

            check_figure(trials_of_models)
    """
    name = getattr(draw, "__name__", type(draw).__name__) if name is None else name
    fail_unless(re.fullmatch(r"[a-z_]+", name) is not None, f"its name must be plain lower-case words: {name!r}")
    view = view_to_draw()
    figures = _Figures(draw, name)
    first = figures.of(view)
    _check_words(first, name)
    fail_unless(_as_svg(figures.of(view)) == _as_svg(first), f"{name} draws the same view in another way each time")
    _check_order_of_configuration(figures, view, first)
    _check_names(figures, view)
    for number in range(len(view.models)):
        _check_place(figures, view, first, number)
    for without in (1, len(view.models)):
        figures.of(_without_scores(view, without))


class _Figures:
    """What is drawn of views."""

    def __init__(self, draw: "Draw", name: str) -> None:
        self._draw, self.name = draw, name

    def of(self, view: RunView) -> "Figure":
        """The figure, laid out as it would be for a file."""
        kept = _open_in_pyplot()
        try:
            with styled(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "(Glyph .* missing|constrained_layout not applied)", UserWarning)
                figure = self._draw(view)
                figure.draw_without_rendering()
                figure.set_layout_engine("none")  # laid out once, as for a file
        except Exception as error:  # whatever it is: no report may end with a traceback
            names = [row.name for row in _results(view).models]
            raise AssertionError(f"{self.name} raises {error!r:.300} for models called {names!r:.200}") from error
        opened = _open_in_pyplot() - kept
        fail_unless(not opened, f"{self.name} leaves a figure open in pyplot; make it by `grid` or `Figure`")
        return figure


@cache
def view_to_draw() -> RunView:
    """A run with several looks."""
    with stored_run() as directory:
        return with_looks(read_view(directory))


def with_looks(view: RunView, number: int = 4) -> RunView:
    """The view with so many looks: scores come nearer to the last, and the first looks have another order."""
    (last,) = view.looks

    def earlier(at: int) -> LookView:
        part = at / number
        order = last.order if at > number // 2 else (*last.order[1:], last.order[0])
        return replace(
            last,
            look=at,
            order=order,
            trials=tuple(round(part * trials) for trials in last.trials),
            sigmas=tuple(None if one is None else one / part**0.5 for one in last.sigmas),
            pairs=tuple(replace(pair, z=None if pair.z is None else part * pair.z) for pair in last.pairs),
        )

    return replace(view, looks=(*(earlier(at) for at in range(1, number)), replace(last, look=number)))


def _results(view: RunView) -> Results:
    assert view.results is not None
    return view.results


def _with_rows(view: RunView, change: Callable[[ModelRow], ModelRow]) -> RunView:
    results = _results(view)
    return replace(view, results=replace(results, models=tuple(map(change, results.models))))


def _without_scores(view: RunView, number: int) -> RunView:
    """The last so many models have none."""
    names = {row.name for row in _results(view).models[-number:]}
    return _with_rows(view, lambda row: replace(row, **UNKNOWN) if row.name in names else row)


def renamed(view: RunView, names: Mapping[str, str]) -> RunView:
    """The same run of models that are called otherwise."""

    def look(one: LookView) -> LookView:
        pairs = (
            replace(pair, better=names[pair.better], worse=None if pair.worse is None else names[pair.worse])
            for pair in one.pairs
        )
        models, order = (tuple(names[name] for name in several) for several in (one.models, one.order))
        return replace(one, models=models, order=order, pairs=tuple(pairs))

    changed = _with_rows(view, lambda row: replace(row, name=names[row.name]))
    results = _results(changed)
    pairs = tuple(
        replace(pair, better=names[pair.better], worse=None if pair.worse is None else names[pair.worse])
        for pair in results.pairs
    )
    models = tuple(names[name] for name in view.models)
    return replace(changed, models=models, looks=tuple(map(look, view.looks)), results=replace(results, pairs=pairs))


def _turned(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(values[::-1])


def _listed_otherwise(view: RunView) -> RunView:
    """The same run of a configuration that lists the models the other way round."""

    def look(one: LookView) -> LookView:
        columns: dict[str, Any] = {name: _turned(getattr(one, name)) for name in OF_A_LOOK}
        return replace(one, **columns)

    columns: dict[str, Any] = {name: _turned(getattr(view, name)) for name in OF_A_VIEW}
    return replace(view, looks=tuple(map(look, view.looks)), **columns)


def _as_svg(figure: "Figure") -> bytes:
    drawn = BytesIO()
    with styled():
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()


def _open_in_pyplot() -> set[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set() if pyplot is None else set(pyplot.get_fignums())


def _check_words(figure: "Figure", name: str) -> None:
    """Axes say what they show, in words that people use."""
    said = [text for axes in figure.axes for text in _labels(axes)] + [
        text.get_text() for text in (getattr(figure, "_supxlabel", None), getattr(figure, "_supylabel", None)) if text
    ]
    fail_unless(any(said), f"{name} has no axis with a label")
    for text in filter(None, said):
        fail_unless(CODE.search(text) is None, f"{name}: {text!r} is no plain English")


def _labels(axes: "Axes") -> list[str]:
    legend = axes.get_legend()
    inside = [] if legend is None else [text.get_text() for text in legend.get_texts()]
    return [axes.get_xlabel(), axes.get_ylabel(), *inside]


def _check_order_of_configuration(figures: _Figures, view: RunView, first: "Figure") -> None:
    drawn = _as_svg(figures.of(_listed_otherwise(view)))
    fail_unless(
        drawn == _as_svg(first),
        f"{figures.name} is another figure where the configuration lists the models in another order: a list in the "
        "order of `view.models` was taken for one in the order of `results.models`, or it is drawn in that order",
    )


def _check_names(figures: _Figures, view: RunView) -> None:
    """Names come from outside, and are drawn as they are."""
    figure = figures.of(renamed(view, dict(zip(view.models, HOSTILE, strict=True))))
    for text in _texts(figure):
        formula = re.search(r"(?<!\\)\$", text)
        fail_unless(formula is None, f"{figures.name}: {text!r:.60} would be a formula; draw names by `plain_name`")
        fail_unless("\x1b" not in text and "\u202e" not in text, f"{figures.name}: {text!r:.60} obeys a name")
        longest = "x" * (LONGEST_NAME + 1)
        fail_unless(longest not in text, f"{figures.name}: a name of 300 characters is drawn whole; use `plain_name`")


def _texts(figure: "Figure") -> Iterator[str]:
    from matplotlib.text import Text

    yield from (text.get_text() for text in figure.findobj(Text))


def _check_place(figures: _Figures, view: RunView, first: "Figure", number: int) -> None:
    """What is known of one model stands by its name, where names stand along an axis."""
    name = view.models[number]

    def moved(row: ModelRow) -> ModelRow:
        if row.name != name or row.score is None or row.lo is None or row.hi is None or row.sigma is None:
            return row
        return replace(row, score=row.score + 1e-3, lo=row.lo - 1e-3, hi=row.hi + 2e-3, trials=row.trials + 1)

    trials = tuple(tuple(one + (model == number) for one in row) for model, row in enumerate(view.trials))
    changed = replace(_with_rows(view, moved), trials=trials)
    for before, after in zip(first.axes, figures.of(changed).axes, strict=True):
        for along in ("x", "y"):
            places = _places_of(before, along, view.models)
            if len(places) < len(view.models):
                continue
            old, new = _marks_by_place(before, along), _marks_by_place(after, along)
            moves = {place for place in old.keys() | new.keys() if old.get(place) != new.get(place)}
            named = next((known for known, place in places.items() if moves == {place}), name)
            fail_unless(named == name, f"{figures.name}: what is known of {name} is drawn by the name of {named}")


def _places_of(axes: "Axes", along: str, models: Sequence[str]) -> dict[str, int]:
    """Where along an axis the name of each model stands, in whole steps; empty where names are no ticks."""
    axis = getattr(axes, f"{along}axis")
    found: dict[str, int] = {}
    for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=False):
        for name in models:
            if name in re.split(r"\W+", label.get_text()):
                found[name] = round(float(place))
    return found


def _marks_by_place(axes: "Axes", along: str) -> dict[int, list[tuple[float, ...]]]:
    """Everything that is drawn at each whole step along an axis, by its numbers."""
    found: dict[int, list[tuple[float, ...]]] = {}
    for place, values in _marks(axes, along == "x"):
        found.setdefault(round(place), []).append(tuple(round(value, 9) for value in values))
    return {place: sorted(values) for place, values in found.items()}


def _marks(axes: "Axes", across: bool) -> Iterator[tuple[float, tuple[float, ...]]]:
    at, to = (0, 1) if across else (1, 0)
    for line in axes.lines:
        for point in np.column_stack(line.get_data()).astype(float):
            if np.isfinite(point[at]):
                yield point[at], (point[to],)
    for patch in axes.patches:
        box = patch.get_path().transformed(patch.get_patch_transform()).get_extents()
        yield (box.min[at] + box.max[at]) / 2.0, (box.min[to], box.max[to])
    for collection in axes.collections:
        offsets: Any = collection.get_offsets()
        paths = collection.get_paths()
        points = offsets if len(offsets) > 1 or not paths else np.concatenate([one.vertices for one in paths])
        for point in np.asarray(points, dtype=float):
            if np.isfinite(point[at]):
                yield point[at], (point[to],)
    for image in axes.images:
        values = np.asarray(image.get_array(), dtype=float)
        for place, row in enumerate(values.T if across else values):
            yield float(place), tuple(row)
