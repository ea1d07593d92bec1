"""Contract of a figure of a run: each mark stands by the name of its model, whatever the models are called."""

import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_eval.report.results import ModelRow, Results
from adaptive_eval.report.view import LookView, RunView, read_view
from adaptive_eval.show.plots import MAX_NAME, styled
from adaptive_eval.testing.runs import fail_unless
from contracts.drawn import (
    formulas,
    is_named,
    looks_like,
    marks_by_place,
    places_of,
    points_drawn,
    same_data,
    texts,
)
from contracts.stored import MANY, many_rows, stored_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Draw = Callable[[RunView], Figure]

HOSTILE = (r"$\frac{", "$a^2$", "\x1b[2J\u202e", "x" * 300)
"""Names of models that mean something else to whatever draws them, or are far too long."""
CHECKPOINTS = tuple(f"organisation/{'a-model-' * 5}step-{number}000" for number in range(1, 5))
"""Long names that are alike but for their ends."""
UNKNOWN: Mapping[str, Any] = dict.fromkeys(("score", "sigma", "lo", "hi", "bayes", "bayes_sigma"))
"""Fields of a model that never answered."""
OF_A_LOOK = ("models", "trials", "tiers", "scores", "sigmas")
OF_A_VIEW = ("models", "trials", "posterior_of", "traffic")
"""Fields in the order of the configuration."""
QUANTITIES: Mapping[str, tuple[str, ...]] = {
    "score": ("score", "lo", "hi", "corrected"),
    "accuracy": ("score", "lo", "hi", "corrected"),
    "trials": ("trials", "stored_trials"),
    "tokens": ("tokens",),
    "usd": ("usd",),
}
"""Fields of a model that an axis may show whose label begins with this word, or with `cost` and has it."""
FILLERS = frozenset(("number", "total", "mean", "average", "all", "stored", "of", "the"))
"""Words before that of a quantity."""
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
    figures.of(view, laid_out=True)
    first = figures.of(view)
    _check_words(first, name)
    _check_axes(first, view, name)
    _check_all_are_named(first, view, name)
    drawn = figures.svg(view)
    fail_unless(figures.svg(view) == drawn, f"{name} draws the same view in another way each time")
    _check_order_of_configuration(figures, view, drawn)
    _check_names(figures, view, first)
    for number in range(len(view.models)):
        _check_place(figures, view, first, number)
    _check_quantities(figures, view, first)
    _check_intervals(figures, view, first)
    _check_nothing_is_zero(figures, view, first)
    _check_all_is_drawn(figures)


class _Figures:
    """Draw views with the function under test."""

    def __init__(self, draw: "Draw", name: str) -> None:
        self._draw, self.name = draw, name

    def of(self, view: RunView, laid_out: bool = False) -> "Figure":
        """The figure; to lay it out as for a file takes as long as all else, and changes nothing that is looked at."""
        return self._drawn(view, lambda figure: figure.draw_without_rendering(), laid_out)

    def svg(self, view: RunView) -> bytes:
        """All that is drawn; it is drawn once, and `savefig` would do so twice."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        drawn = BytesIO()
        self._drawn(view, lambda figure: FigureCanvasSVG(figure).print_svg(drawn, metadata={"Date": None}))
        return drawn.getvalue()

    def _drawn(self, view: RunView, draw: "Callable[[Figure], None]", laid_out: bool = False) -> "Figure":
        open_before = _open_in_pyplot()
        try:
            with styled(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "(Glyph .* missing|constrained_layout not applied)", UserWarning)
                figure = self._draw(view)
                if not laid_out:
                    figure.set_layout_engine("none")
                draw(figure)
        except Exception as error:  # whatever it is: no report may end with a traceback
            names = [row.name for row in _results(view).models]
            raise AssertionError(f"{self.name} raises {error!r:.300} for models called {names!r:.200}") from error
        opened = _open_in_pyplot() - open_before
        fail_unless(not opened, f"{self.name} leaves a figure open in pyplot; make it by `grid` or `Figure`")
        return figure


@cache
def view_to_draw() -> RunView:
    """A run with several looks."""
    with stored_run() as directory:
        return with_looks(read_view(directory))


@cache
def view_of_many() -> RunView:
    """A run with more models, questions and looks than usual."""
    with stored_run(many_rows()) as directory:
        return with_looks(read_view(directory), MANY)


def with_looks(view: RunView, number: int = 4) -> RunView:
    """The view with this many looks: scores approach the last ones, and the first looks have another order."""
    (last,) = view.looks

    def earlier(at: int) -> LookView:
        part = at / number
        order = last.order if at > number // 2 else (*last.order[1:], last.order[0])
        return replace(
            last,
            look=at,
            order=order,
            trials=tuple(round(part * trials) for trials in last.trials),
            sigmas=tuple(None if sigma is None else sigma / part**0.5 for sigma in last.sigmas),
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
    """The view in which this many models, the last ones, have no score."""
    names = {row.name for row in _results(view).models[-number:]}

    def look(look_view: LookView) -> LookView:
        scores, sigmas = (
            tuple(None if name in names else value for name, value in zip(look_view.models, values, strict=True))
            for values in (look_view.scores, look_view.sigmas)
        )
        return replace(look_view, scores=scores, sigmas=sigmas)

    blanked = _with_rows(view, lambda row: replace(row, **UNKNOWN) if row.name in names else row)
    return replace(blanked, looks=tuple(map(look, view.looks)))


def renamed(view: RunView, names: Mapping[str, str]) -> RunView:
    """The view of the same run with other names for its models."""

    def look(look_view: LookView) -> LookView:
        pairs = (
            replace(pair, first=names[pair.first], second=None if pair.second is None else names[pair.second])
            for pair in look_view.pairs
        )
        models, order = (tuple(names[name] for name in old_names) for old_names in (look_view.models, look_view.order))
        return replace(look_view, models=models, order=order, pairs=tuple(pairs))

    changed = _with_rows(view, lambda row: replace(row, name=names[row.name]))
    results = _results(changed)
    pairs = tuple(
        replace(pair, first=names[pair.first], second=None if pair.second is None else names[pair.second])
        for pair in results.pairs
    )
    models = tuple(names[name] for name in view.models)
    return replace(changed, models=models, looks=tuple(map(look, view.looks)), results=replace(results, pairs=pairs))


def _turned(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(values[::-1])


def _listed_otherwise(view: RunView) -> RunView:
    """The view of the same run with the models listed in reverse order."""

    def look(look_view: LookView) -> LookView:
        columns: dict[str, Any] = {name: _turned(getattr(look_view, name)) for name in OF_A_LOOK}
        return replace(look_view, **columns)

    columns: dict[str, Any] = {name: _turned(getattr(view, name)) for name in OF_A_VIEW}
    return replace(view, looks=tuple(map(look, view.looks)), **columns)


def _open_in_pyplot() -> set[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set() if pyplot is None else set(pyplot.get_fignums())


def _check_words(figure: "Figure", name: str) -> None:
    """Check that axes have readable labels."""
    labels = [text for axes in figure.axes for text in _labels(axes)] + [
        text.get_text() for text in (getattr(figure, "_supxlabel", None), getattr(figure, "_supylabel", None)) if text
    ]
    fail_unless(any(labels), f"{name} has no axis with a label")
    for text in filter(None, labels):
        fail_unless(CODE.search(text) is None, f"{name}: {text!r} is no plain English")


def _labels(axes: "Axes") -> list[str]:
    return [axes.get_xlabel(), axes.get_ylabel(), *_in_legend(axes)]


def _in_legend(axes: "Axes") -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def _check_axes(figure: "Figure", view: RunView, name: str) -> None:
    """Each axis with numbers says what they are, itself or in a legend, and what is drawn lies within the axes."""
    over = {"x": getattr(figure, "_supxlabel", None), "y": getattr(figure, "_supylabel", None)}
    for axes in figure.axes:
        inside = [text for text in _in_legend(axes) if not any(is_named(model, text) for model in view.models)]
        for along, ends in (("x", sorted(axes.get_xlim())), ("y", sorted(axes.get_ylim()))):
            axis = getattr(axes, f"{along}axis")
            numbers = [label.get_text() for label in axis.get_ticklabels() if label.get_visible()]
            unsaid = any(re.fullmatch(r"[−-]?[\d.]+", number) for number in numbers) and not axis.get_label_text()
            fail_unless(
                not unsaid or bool(inside) or over[along] is not None or not axes.get_visible(),
                f"{name}: the numbers along {along} have no label that says what they are",
            )
            slack = 1e-9 + 1e-6 * (ends[1] - ends[0])
            for drawn in points_drawn(axes):
                points = drawn[:, 0 if along == "x" else 1]
                points = points[np.isfinite(points) & ((points > 0.0) | (axis.get_scale() == "linear"))]
                outside = points[(points < ends[0] - slack) | (points > ends[1] + slack)]
                fail_unless(not len(outside), f"{name}: what is drawn at {along} {outside[:1]} is outside of the axes")


def _check_all_are_named(figure: "Figure", view: RunView, name: str) -> None:
    text = " ".join(texts(figure))
    missing = [model for model in view.models if not is_named(model, text)]
    fail_unless(len(missing) in (0, len(view.models)), f"{name} has the names of some models, and leaves out {missing}")


def _check_order_of_configuration(figures: _Figures, view: RunView, drawn: bytes) -> None:
    fail_unless(
        figures.svg(_listed_otherwise(view)) == drawn,
        f"{figures.name} is another figure where the configuration lists the models in another order: a list in the "
        "order of `view.models` was taken for one in the order of `results.models`, or it is drawn in that order",
    )


def _check_names(figures: _Figures, view: RunView, first: "Figure") -> None:
    """Check that names from outside are drawn literally."""
    figure = figures.of(renamed(view, dict(zip(view.models, HOSTILE, strict=True))))
    formula = next(formulas(figure), None)
    fail_unless(formula is None, f"{figures.name}: {formula!r:.60} would be a formula; draw names by `plain_name`")
    for text in texts(figure):
        fail_unless("\x1b" not in text and "\u202e" not in text, f"{figures.name}: {text!r:.60} obeys a name")
        longest = "x" * (MAX_NAME + 1)
        fail_unless(longest not in text, f"{figures.name}: a name of 300 characters is drawn whole; use `plain_name`")
    _check_names_apart(figures, view, first)


def _check_names_apart(figures: _Figures, view: RunView, first: "Figure") -> None:
    """Check that long names differing only in their last characters, such as checkpoints, stay distinct."""
    figure = figures.of(renamed(view, dict(zip(view.models, CHECKPOINTS, strict=True))))
    seen: dict[str, str] = {}
    for before, after in zip(texts(first), texts(figure), strict=False):
        named = [name for name in view.models if is_named(name, before)]
        if len(named) == 1:
            other = seen.setdefault(after, named[0])
            fail_unless(
                other == named[0],
                f"{figures.name}: {CHECKPOINTS[0]!r} and the like are all drawn as {after!r}; use `plain_name`",
            )


def _moved(view: RunView, name: str) -> RunView:
    """The view with one model changed a little: its score, its interval, and its trials."""

    def moved(row: ModelRow) -> ModelRow:
        if row.name != name or row.score is None or row.lo is None or row.hi is None or row.sigma is None:
            return row
        return replace(row, score=row.score + 1e-3, lo=row.lo - 1e-3, hi=row.hi + 2e-3, trials=row.trials + 1)

    def seen(look: LookView) -> LookView:
        rows = zip(look.models, look.scores, strict=True)
        return replace(look, scores=tuple(s if s is None or model != name else s + 1e-3 for model, s in rows))

    rows = zip(view.models, view.trials, strict=True)
    trials = tuple(tuple(count + (model == name) for count in row) for model, row in rows)
    return replace(_with_rows(view, moved), trials=trials, looks=tuple(map(seen, view.looks)))


def _check_place(figures: _Figures, view: RunView, first: "Figure", number: int) -> None:
    """Check that a model's values stand by its name, along an axis and in a legend."""
    name = view.models[number]
    for before, after in zip(first.axes, figures.of(_moved(view, name)).axes, strict=True):
        for along in ("x", "y"):
            places = places_of(before, along, view.models)
            if len(places) < len(view.models):
                continue
            old, new = marks_by_place(before, along), marks_by_place(after, along)
            moves = {place for place in old.keys() | new.keys() if old.get(place) != new.get(place)}
            named = next((candidate for candidate, place in places.items() if moves == {place}), name)
            fail_unless(named == name, f"{figures.name}: what is known of {name} is drawn by the name of {named}")
            beside = 0 < len(moves) < len(places) - 1 and places[name] not in moves  # more: all are shares of a sum
            fail_unless(not beside, f"{figures.name}: what is known of {name} is drawn by other names")
        lines = [line for line, now in zip(before.lines, after.lines, strict=False) if not same_data(line, now)]
        if lines:
            all_text = " ".join(texts(first))
            fail_unless(is_named(name, all_text), f"{figures.name}: what is drawn of {name} has no name beside it")
        _check_legend(before, lines, view, name, figures.name)


def _check_legend(axes: "Axes", lines: Sequence[Any], view: RunView, name: str, figure: str) -> None:
    """Check that lines showing a model's values have its name in the legend, and no other."""
    legend = axes.get_legend()
    if legend is None or not lines:
        return
    entries = zip(legend.legend_handles, (text.get_text() for text in legend.get_texts()), strict=True)
    seen: dict[tuple[str, ...], str] = {}
    for handle, text in entries:
        if (named := next((model for model in view.models if is_named(model, text)), None)) and hasattr(
            handle, "get_color"
        ):
            alike = seen.setdefault(looks_like(handle), named)
            fail_unless(alike == named, f"{figure}: the lines of {alike} and {named} look alike")
    for line in lines:
        named = seen.get(looks_like(line), name)
        fail_unless(named == name, f"{figure}: the line of {name} has the name of {named} in the legend")


def _check_quantities(figures: _Figures, view: RunView, first: "Figure") -> None:
    """Check that an axis beside model names shows the quantity that its label begins with."""
    for number, axes in enumerate(first.axes):
        for along, names_along in (("x", "y"), ("y", "x")):
            words = re.findall(r"\w+", getattr(axes, f"{along}axis").get_label_text().lower())
            words = [*dropwhile(FILLERS.__contains__, words)]
            naming = words if words[:1] == ["cost"] else words[:1]
            word = next((candidate for candidate in naming if candidate in QUANTITIES), None)
            if word and len(places_of(axes, names_along, view.models)) == len(view.models):
                now = figures.of(_with_more(view, QUANTITIES[word])).axes[number]
                same = marks_by_place(axes, names_along) == marks_by_place(now, names_along)
                fail_unless(
                    not same,
                    f"{figures.name}: an axis says {word}, but shows something else: where it changes nothing moves",
                )


def _with_more(view: RunView, fields: Sequence[str]) -> RunView:
    """The view with more of a quantity, for each model and, if it is trials, for each question."""

    def more(row: ModelRow) -> ModelRow:
        values = {field: getattr(row, field) for field in fields if getattr(row, field) is not None}
        changed: dict[str, Any] = {field: at + (1 if isinstance(at, int) else 1e-3) for field, at in values.items()}
        return replace(row, **changed)

    trials = tuple(tuple(count + ("trials" in fields) for count in row) for row in view.trials)
    return replace(_with_rows(view, more), trials=trials)


def _check_intervals(figures: _Figures, view: RunView, first: "Figure") -> None:
    """Check that each end of an interval is drawn on its own side."""
    row = next(row for row in _results(view).models if None not in (row.score, row.lo, row.hi))
    assert row.score is not None and row.lo is not None and row.hi is not None
    for end, value, sign in (("lo", row.lo - 2e-3, -1.0), ("hi", row.hi + 2e-3, 1.0)):

        def wider(model_row: ModelRow, end: str = end, value: float = value) -> ModelRow:
            changed: dict[str, Any] = {end: value}
            return replace(model_row, **changed) if model_row.name == row.name else model_row

        for before, after in zip(first.axes, figures.of(_with_rows(view, wider)).axes, strict=True):
            for along in ("x", "y"):
                place = places_of(before, along, view.models).get(row.name)
                old, new = (
                    {value for values in marks_by_place(axes, along).get(place or 0, []) for value in values}
                    for axes in (before, after)
                )
                if place is None or round(row.score, 9) not in old:
                    continue  # no scores are drawn here
                wrong = sorted(mark for mark in new - old if sign * (mark - row.score) < 0.0)
                fail_unless(
                    not wrong,
                    f"{figures.name}: `{end}` of {row.name} moves the other end of its interval: the ends are `lo` and "
                    "`hi`, as they are",
                )


def _check_all_is_drawn(figures: _Figures) -> None:
    """Check that the last of many models, questions and looks is drawn if the first is."""
    view = view_of_many()
    _check_all_are_named(figures.of(view), view, figures.name)
    drawn, in_order = figures.svg(view), [row.name for row in _results(view).models]
    for what, changed in (
        ("models", [_moved(view, name) for name in (in_order[0], in_order[-1])]),
        ("questions", [_asked_more(view, number) for number in (0, -1)]),
        ("looks", [_seen_otherwise(view, number) for number in (0, -1)]),
    ):
        first, last = (figures.svg(variant) != drawn for variant in changed)
        end, other = ("last", "first") if first else ("first", "last")
        fail_unless(
            first == last,
            f"{figures.name} leaves out the {end} of {MANY} {what}: what is known of it changes nothing, and what is "
            f"known of the {other} does",
        )


def _asked_more(view: RunView, question: int) -> RunView:
    """The view with three more trials of a question by each model."""
    number = question % len(view.trials[0])
    trials = tuple(tuple(count + 3 * (at == number) for at, count in enumerate(row)) for row in view.trials)
    return replace(view, trials=trials)


def _seen_otherwise(view: RunView, number: int) -> RunView:
    """The view in which one look has other scores, more trials, and the reverse order."""
    looks = list(view.looks)
    look = looks[number]
    looks[number] = replace(
        look,
        order=_turned(look.order),
        trials=tuple(value + 1 for value in look.trials),
        scores=tuple(None if value is None else value + 1e-3 for value in look.scores),
        pairs=tuple(replace(pair, z=None if pair.z is None else pair.z + 0.1) for pair in look.pairs),
    )
    return replace(view, looks=tuple(looks))


def _check_nothing_is_zero(figures: _Figures, view: RunView, first: "Figure") -> None:
    """Check that a model without a score is not drawn, and a score of zero is drawn like any other."""
    for without in (1, len(view.models)):
        now = figures.of(_without_scores(view, without))
        for before, after in zip(first.axes, now.axes, strict=False):
            for along in ("x", "y"):
                old, new = (
                    {value for values in marks_by_place(axes, along).values() for mark in values for value in mark}
                    for axes in (before, after)
                )
                made_up = 0.0 in new - old
                fail_unless(not made_up, f"{figures.name} draws a model without a score as if its score were 0")
    rows = [row for row in _results(view).models if row.score is not None]
    name = rows[-1].name

    def least(row: ModelRow, score: float) -> ModelRow:
        return row if row.name != name else replace(row, score=score, lo=0.0, hi=0.1, sigma=0.03)

    nothing, little = (figures.of(_with_rows(view, lambda row, at=at: least(row, at))) for at in (0.0, 1e-4))  # type: ignore[misc]
    for nothing_axes, little_axes in zip(nothing.axes, little.axes, strict=True):
        for along in ("x", "y"):
            counts = [sum(map(len, marks_by_place(axes, along).values())) for axes in (nothing_axes, little_axes)]
            fail_unless(counts[0] == counts[1], f"{figures.name}: a model whose score is 0 is drawn as if it had none")
    _check_all_are_named(nothing, view, figures.name)
    _check_unknown_is_not_zero(figures, view, name)


def _check_unknown_is_not_zero(figures: _Figures, view: RunView, name: str) -> None:
    """Check that a missing score is drawn differently from a bar from 0 to 0, where scores are drawn."""

    def drawn(value: float | None) -> bytes:
        fields = dict.fromkeys(UNKNOWN, value)
        return figures.svg(_with_rows(view, lambda row: replace(row, **fields) if row.name == name else row))

    unknown = drawn(None)
    fail_unless(
        unknown != drawn(0.0) or unknown == drawn(0.25),
        f"{figures.name} draws a model without a score as if its score were 0: `score or 0` is another figure",
    )
