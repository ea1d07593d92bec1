"""A forecast as text, and the table over many replays of the same run."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from rich.cells import cell_len

from adaptive_eval.core import Reason
from adaptive_eval.report.findings import SHOWN_PAIRS
from adaptive_eval.report.lines import Scale, amount, capitalised, count, duration, safe_line, several
from adaptive_eval.report.needs import pair_names
from adaptive_eval.report.results import setting
from adaptive_eval.report.words import deciding_rule, draws_questions, objective_view
from adaptive_eval.show.ranking import MAX_NAME_WIDTH
from adaptive_eval.show.summary import SHOWN_MODELS
from adaptive_eval.show.text import dollars, fit_columns, number_or_dash
from adaptive_eval.study.judged import JudgedReplay
from adaptive_eval.study.types import Costs, Forecast, GradeCosts, Outlook, Range, Undecided

ROW_TITLES = {
    "cost": "cost, share of the maximum",
    "trials": "trials",
    "looks": "looks",
    "called": "comparisons decided",
    "wrong": "wrong decisions",
    "tied": "tied",
    "out_of_reach": "out of reach",
    "covered": "95% intervals that contain the true score",
    "tau_b": "Kendall's tau-b with the true order",
}


def replays_table(runs: Sequence[JudgedReplay]) -> str:
    """Mean, standard deviation and range over all replays, and the number of replays with a wrong decision."""
    width = max(map(len, ROW_TITLES.values()))
    lines = [f"{'':<{width}}  {'mean':>9}  {'sd':>9}  {'min':>9}  {'max':>9}"]
    for name, title in ROW_TITLES.items():
        values = np.array([getattr(run, name) for run in runs], dtype=float)
        if not np.isnan(values).all():
            lines.append(f"{title:<{width}}  {'  '.join(_summary_cells(values))}")
    wrong = sum(run.wrong > 0 for run in runs)
    ended = Counter(run.reason for run in runs)
    lines += ["", f"{wrong} of {len(runs)} runs made a wrong decision ({wrong / len(runs):.1%})"]
    endings = ", ".join(f"{ENDINGS.get(reason, reason.replace('_', ' '))}: {n}" for reason, n in ended.most_common())
    return "\n".join([*lines, f"ended with {endings}"])


def _summary_cells(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Iterator[str]:
    digits = 0 if np.nanmax(np.abs(values)) >= 1000.0 else 3
    spread = float(np.nanstd(values, ddof=1)) if len(values) > 1 else float("nan")
    for value in (float(np.nanmean(values)), spread, float(np.nanmin(values)), float(np.nanmax(values))):
        yield f"{number_or_dash(value, digits):>9}"


MAX_LINE = 400
SETTLED = str(Reason.SETTLED)
ENDINGS = {SETTLED: "all comparisons decided", str(Reason.OUT_OF_REACH): "some out of reach"}
"""How runs ended, in words; other reasons are words themselves."""

SLOW_RATIO = 1.1
"""Time relative to the fixed design above which a faster setting is proposed."""

Formatter = Callable[[float], str]


def _gpu_hours(value: float) -> str:
    return amount(value, [value]) if value < 100.0 else count(value)


FORMATS: Mapping[str, tuple[str, Formatter]] = {
    "trials": ("trials", count),
    "tokens": ("tokens", count),
    "usd": ("USD", dollars),
    "gpu_hours": ("GPU hours", _gpu_hours),
    "seconds": ("time", duration),
}
UNLIMITED, NOT_REACHED, LIMITED = "without a limit", "if no limit is reached", "with the limit"
"""Titles of the outlook: of a run without limits, and of one with limits if it reaches none, and as it is."""
TOO_SMALL = "the budget does not cover the first round: no ranking"
LABEL_WIDTH = len(NOT_REACHED) - 2


def answer_line(forecast: Forecast) -> str:
    """Expected cost, its share of the fixed design, and the chance to decide all, in one line."""
    outlook = forecast.equal or forecast.capped or forecast.need
    if not outlook.comparisons:
        return capitalised(TOO_SMALL)
    name = next(key for key in ("usd", "gpu_hours", "trials") if getattr(outlook.costs, key) is not None)
    (label, written), cost = FORMATS[name], getattr(outlook.costs, name).median
    unit, fixed = "" if name == "usd" else f" {label}", forecast.fixed[name]
    spent = "" if forecast.spent is None else f" ({written(getattr(forecast.spent, name))} so far)"
    trials = forecast.decisions["trials"]
    answers = several(int(trials["max"]), "answer") if isinstance(trials, Mapping) else ""
    compared = f", {cost / fixed:.0%} of the cost of {answers} per question from each model" if fixed else ""
    decides = f"{_decided_text(outlook)} comparisons decided. Chance that all are decided: {outlook.reached:.0%}"
    if forecast.equal is not None:
        decides = f"a build exactly as good as the baseline: {_gate_chances(forecast.equal)}"
    return f"Median: {written(cost)}{unit}{spent}{compared}; {decides}"


def forecast_lines(forecast: Forecast, weights: tuple[float, ...]) -> Iterator[str]:
    """Render the forecast; `weights` are those of the rubric."""
    scale = Scale.of(weights)
    for place, sentence in enumerate(forecast.basis):
        yield f"{'basis' if place == 0 else '':<9} {safe_line(sentence, MAX_LINE)}"
    yield ""
    if forecast.equal is not None and forecast.equal.comparisons:
        median, *ends = (count(getattr(forecast.equal.costs.trials, name)) for name in ("median", "low", "high"))
        yield f"a build exactly as good as the baseline takes {median} trials ({' .. '.join(ends)})\n"
    yield from _score_lines(forecast, scale)
    yield ""
    yield from _outlook_lines(UNLIMITED if forecast.capped is None else NOT_REACHED, forecast.need, forecast)
    if forecast.capped is not None:
        yield ""
        yield from _outlook_lines(LIMITED, forecast.capped, forecast)
    yield from _grade_costs(forecast.grading)
    yield from _smallest_fixed_design(forecast)
    yield from _time_line(forecast)
    yield from _remaining_costs(forecast)
    yield from _undecided_lines(forecast, scale)
    yield from _limit_lines(forecast, scale)


def _score_lines(forecast: Forecast, scale: Scale) -> Iterator[str]:
    """Assumed true scores of the models, one by one if there is a pilot."""
    if len(forecast.models) > 1:
        apart, low, high = (scale.rounded_points(getattr(forecast.gap, name)) for name in ("median", "low", "high"))
        yield f"assumed: true scores of neighbours differ by {apart} (80% of them by {low} to {high})"
    if forecast.pilot is None:
        return
    width = min(max(cell_len(safe_line(name)) for name in forecast.models), MAX_NAME_WIDTH)
    ranked = sorted(zip(forecast.models, forecast.scores, strict=True), key=lambda item: -item[1].median)
    yield f"{'model':<{width}}  {'score':>7}  {'80% interval':^17}".rstrip()
    for name, score in ranked[:SHOWN_MODELS]:
        yield f"{fit_columns(name, width)}  {scale.score(score.median):>7}  {scale.interval(score.low, score.high)}"
    if len(ranked) > SHOWN_MODELS:
        yield f"and {len(ranked) - SHOWN_MODELS} more"


def _outlook_lines(title: str, outlook: Outlook, forecast: Forecast) -> Iterator[str]:
    if not outlook.comparisons:
        yield f"{title:<{LABEL_WIDTH + 2}}  {TOO_SMALL}"
        return
    yield f"{title:<{LABEL_WIDTH + 2}}  {'median':>9}  {'80% interval':^21}  fixed design"
    for name, (label, written) in FORMATS.items():
        cost_range: Range | None = getattr(outlook.costs, name)
        if cost_range is not None:
            interval = f"{written(cost_range.low)} .. {written(cost_range.high)}"
            value = forecast.fixed.get(name)
            fixed = "" if value is None else written(value)
            yield f"  {label:<{LABEL_WIDTH}}  {written(cost_range.median):>9}  {interval:^21}  {fixed}".rstrip()
    interval = f"{outlook.decided.low:.0f} .. {outlook.decided.high:.0f}"
    yield f"  {'decided':<{LABEL_WIDTH}}  {_decided_text(outlook):>9}  {interval:^21}".rstrip()
    others = [f"{reason.replace('_', ' ')} {share:.0%}" for reason, share in outlook.ended.items() if reason != SETTLED]
    if outlook.gate:
        yield f"  gate: {_gate_chances(outlook)}, over builds with such scores"
    yield f"  chance that all are decided: {outlook.reached:.0%}" + (f" ({', '.join(others)})" if others else "")


def _decided_text(outlook: Outlook) -> str:
    return f"{outlook.decided.median:.0f} of {outlook.comparisons}"


def _gate_chances(outlook: Outlook) -> str:
    return ", ".join(f"{outcome} {share:.0%}" for outcome, share in outlook.gate.items())


def _grade_costs(costs: GradeCosts | None) -> Iterator[str]:
    parts = []
    for name, (label, written) in FORMATS.items():
        cost: Range | None = getattr(costs, name, None)
        if cost is not None and cost.median:
            parts.append(written(cost.median) if name == "usd" else f"{written(cost.median)} {label}")
    if parts:
        yield f"  of this for grades: {', '.join(parts)}"


def _smallest_fixed_design(forecast: Forecast) -> Iterator[str]:
    smallest = forecast.as_many
    if smallest is None:
        return
    many = f"resolves as many comparisons ({smallest.called:.1f} on average; ties are not counted)"
    if smallest.number is None:
        yield f"  no fixed design within trials.max {many};"
        yield f"  the run takes {smallest.cost:.0%} of the largest design's trials, on average"
        return
    yield f"  a fixed design with {smallest.number:.0f} answers per question from each model {many};"
    yield f"  the run takes {smallest.cost:.0%} of that design's trials, on average"


def _time_line(forecast: Forecast) -> Iterator[str]:
    """Explanation of the figures, and the time relative to a fixed design."""
    if forecast.fixed["tokens"] is not None:
        yield "  These are expected costs. A limit must cover the worst case of the first round; `validate` warns if it"
        yield "  does not"
    if forecast.times_as_long is not None:
        parts = [f"  expected time: {forecast.times_as_long:.0%} of the fixed design's"]
        if forecast.times_as_long > SLOW_RATIO:
            parts = [f"{parts[0]}, whose servers are always busy", *_faster_settings(forecast)]
        yield "; ".join(parts)


def _faster_settings(forecast: Forecast) -> Iterator[str]:
    """Settings that would take less time."""
    if draws_questions(forecast.decisions):
        yield "larger blocks (trials.draw) take less time, but more trials"
    elif setting(forecast.decisions, "trials", "optimize") not in (None, "time"):
        yield "trials.optimize: time keeps those of the run busy, too"


def _remaining_costs(forecast: Forecast) -> Iterator[str]:
    spent = forecast.spent
    if spent is None:
        return
    costs: Costs = (forecast.capped or forecast.need).costs
    parts = []
    for name, (label, written) in FORMATS.items():
        cost_range: Range | None = getattr(costs, name)
        before: float | None = getattr(spent, name)
        if cost_range is not None and before is not None:
            more = [written(max(value - before, 0.0)) for value in (cost_range.median, cost_range.low, cost_range.high)]
            further = f"{more[0]} ({more[1]} .. {more[2]})"
            parts.append(further if name in ("usd", "seconds") else f"{further} {label}")
    yield f"  of this, the run has {count(spent.trials)} trials already; still to come: {', '.join(parts)}"


def _undecided_lines(forecast: Forecast, scale: Scale) -> Iterator[str]:
    if not forecast.undecided or forecast.pilot is None:  # without a pilot all models are alike
        return
    yield ""
    yield "most likely to stay undecided"
    for pair in forecast.undecided[:SHOWN_PAIRS]:
        apart = "" if pair.gap is None else f", if so {scale.rounded_points(pair.gap)} apart"
        yield f"  {pair_names(pair.first, pair.second)}: {pair.chance:.0%}{apart}{_needed_text(forecast, pair)}"


def _needed_text(forecast: Forecast, pair: Undecided) -> str:
    if pair.trials_needed is None:
        return ""
    if draws_questions(forecast.decisions):
        questions = (forecast.fixed["trials"] or 0.0) / len(forecast.models)
        return f", would need about {count(pair.trials_needed * questions)} questions"
    return f", would need about {count(pair.trials_needed)} trials per question"


def _limit_lines(forecast: Forecast, scale: Scale) -> Iterator[str]:
    limits, rule = forecast.limits, deciding_rule(forecast.decisions)
    if limits.largest is None or forecast.need.gate or (rule is not None and rule.lenient):
        return  # a gate and a pick decide no difference
    yield ""
    chooses = objective_view(forecast.decisions).margin is not None  # its calls are not of differences
    if limits.gap is None:
        yield f"gap       no difference up to {scale.rounded_points(limits.largest)} is decided with a chance of 80%"
    elif not chooses:
        smallest = scale.rounded_points(limits.gap)
        yield f"gap       a difference of {smallest} or more is decided with a chance of 80%"
    if limits.delta is not None:
        does = "a cheap model as good as the best is chosen" if chooses else "equal models are shown to be tied"
        yield f"delta     with {scale.rounded_points(limits.delta)}, {does} with a chance of 80%"
