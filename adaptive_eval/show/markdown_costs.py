"""What a run has cost, as the section of a Markdown report: by model, by judge, and beside a fixed design."""

from collections.abc import Callable, Iterator
from functools import partial

from adaptive_eval.record.besides import Beside, besides
from adaptive_eval.record.lines import duration
from adaptive_eval.record.results import BesideFixed, GradingCost, ModelRow, Results, RunCost, WastedCost
from adaptive_eval.record.view import RunView
from adaptive_eval.show.beside import wasted_words
from adaptive_eval.show.text import SECONDS_AN_HOUR, amount, count, informative_columns, markdown_cell, markdown_table
from adaptive_eval.store import JudgeUse

SERVER_TIME = (
    "Server time is how long servers were held, busy or not: those that the run has started from when they were ready "
    "until they were stopped, any other from the first to the last request of each start of the run."
)


def _fixed_cost(cost: RunCost) -> Iterator[str]:
    """What it would have been, as far as trials cost anything."""
    yield f"{count(cost.fixed_trials)} trials"
    if cost.fixed_tokens:
        yield f"about {count(cost.fixed_tokens)} tokens"
    if cost.fixed_usd:
        yield f"about {amount(cost.fixed_usd, [cost.fixed_usd])} USD"
    if cost.fixed_gpu_seconds:
        hours = cost.fixed_gpu_seconds / SECONDS_AN_HOUR
        yield f"about {amount(hours, [hours])} GPU hours of requests"


def cost_section(view: RunView, results: Results) -> str:
    """A row for each model and for what was spent besides, their sum, and what explains them."""
    retries: dict[str, int] = {}
    for one in view.traffic:
        retries[one.model] = retries.get(one.model, 0) + one.retries
    cost = results.cost
    others = besides(cost.beside)
    spent: list[ModelRow | Beside] = [*results.models, *others]
    usd = partial(amount, among=[row.usd for row in spent])
    hours = partial(amount, among=[row.gpu_seconds / SECONDS_AN_HOUR for row in spent])
    paid = results.server_time_is_paid
    rows = [_cost_row(row, retries.get(row.name, 0), usd, hours, paid=paid) for row in results.models]
    if cost.grading is not None:
        rows += _grading_costs(cost.grading, usd, hours)
    rows += [_beside_row(row, usd, hours) for row in others]
    total = ["**all**", count(int(cost.in_all("trials"))), _some(cost.in_all("tokens"), count)]
    total += [_some(cost.in_all("usd"), usd), _some(cost.in_all("gpu_seconds") / SECONDS_AN_HOUR, hours)]
    total += _held(cost, hours, paid=paid)
    rows.append([*total, "", "", count(sum(retries.values()))])
    head = ["model", "trials", "tokens", "USD", "GPU hours of requests", "server time", "GPU hours held"]
    head += ["truncated", "no grade", "retries"]
    fixed = ", ".join(_fixed_cost(cost))
    told = f"A fixed design of the same horizon: {fixed}. Active for {duration(view.elapsed)}."
    beside = "" if cost.beside_fixed is None else f"\n\n{_beside_fixed(cost.beside_fixed)}"
    told += f" {SERVER_TIME}" if paid and cost.server_seconds is not None else ""
    return f"{markdown_table(*informative_columns(head, rows))}\n\n{told}{beside}{_judged(view)}"


def _beside_fixed(found: BesideFixed) -> str:
    """Runs like this one beside the smallest fixed design that calls as many."""
    runs = (
        f"Beside the smallest fixed design that calls as many pairs: in {found.worlds} worlds drawn from what these "
        f"answers leave open, a run takes {found.trials:.1f} trials a question and names the better one of "
        f"{found.called:.1f} pairs (ties within delta are not counted: a fixed design certifies none)"
    )
    share = f"a run takes {found.cost:.2f} of that (80% interval: {found.low:.2f} to {found.high:.2f})"
    if found.number is None:
        return f"{runs}. Not even the maximum of trials for everyone calls as many at one look; {share}."
    return f"{runs}. A fixed design needs {found.number:.1f} for as many at one look; {share}."


def _judged(view: RunView) -> str:
    """What a judge has used of it."""
    one = view.judge
    if one is None:
        return ""
    usd = "" if not one.usd else f", {amount(one.usd, [one.usd])} USD"
    hours = one.gpu_seconds / SECONDS_AN_HOUR
    held = "" if not hours else f", {amount(hours, [hours])} GPU hours"
    return (
        f"\n\nOf this the judge has used, for its verdicts on {count(one.answers)} answers: "
        f"{count(one.prompt_tokens)} tokens of requests and {count(one.completion_tokens)} of replies{usd}{held}."
        f"{_in_both_orders(one)}{_among_judges(view, one)}"
    )


def _among_judges(view: RunView, one: JudgeUse) -> str:
    """How far each of several judges agrees with what most of them have said."""
    if not any(share is not None for share in one.agreements):
        return ""
    grader = view.configuration["grader"]
    assert isinstance(grader, dict)
    names = [str(seat["server"]["model"]) for seat in (grader, *grader["panel"])]
    each = zip(names, one.agreements, strict=False)
    told = (f"{markdown_cell(name)} {'no vote' if share is None else f'{share:.1%}'}" for name, share in each)
    return f" Votes that said what was decided, by judge: {', '.join(told)}."


def _in_both_orders(one: JudgeUse) -> str:
    """How much of what a judge has said depends on the order in which answers stood."""
    if not one.compared:
        return ""
    share, towards = one.order_dependent / one.compared, one.prefers_first / one.compared
    place = "first" if towards > 0 else "second"
    leaning = f", by {abs(towards):.1%} in favour of the {place} place" if round(abs(towards), 3) else ""
    return (
        f" Of {count(one.compared)} comparisons {share:.1%} depend on the order of the two answers, and count as "
        f"ties{leaning}."
    )


def _held(one: ModelRow | RunCost, hours: Callable[[float], str], *, paid: bool) -> list[str]:
    """For how long servers were held, and with how many GPUs."""
    if not paid or one.server_seconds is None:
        return ["-", "-"]
    return [duration(one.server_seconds), _some((one.server_gpu_seconds or 0.0) / SECONDS_AN_HOUR, hours)]


def _cost_row(
    row: ModelRow, retries: int, usd: Callable[[float], str], hours: Callable[[float], str], *, paid: bool
) -> list[str]:
    share = row.signals.get("truncated", 0) / row.stored_trials if row.stored_trials else 0.0
    if row.recorded is not None:
        return [markdown_cell(row.name), f"recorded: {markdown_cell(row.recorded)}", *["-"] * 5, "-", "-", "-"]
    return [
        markdown_cell(row.name),
        count(row.stored_trials),
        _some(row.tokens, count),
        _some(row.usd, usd),
        _some(row.gpu_seconds / SECONDS_AN_HOUR, hours),
        *_held(row, hours, paid=paid),
        f"{share:.1%}",
        count(row.ungraded),
        count(retries),
    ]


def _beside_row(row: Beside, usd: Callable[[float], str], hours: Callable[[float], str]) -> list[str]:
    """What was spent besides; whatever servers of models that left were held for is in no column."""
    used = [_some(row.trials, count), _some(row.tokens, count), _some(row.usd, usd)]
    return [markdown_cell(row.on), *used, _some(row.gpu_seconds / SECONDS_AN_HOUR, hours), *["-"] * 5]


def _grading_costs(row: GradingCost, usd: Callable[[float], str], hours: Callable[[float], str]) -> Iterator[list[str]]:
    """What a judge or a verifier has used of the rows of the models."""
    parts: list[tuple[str, GradingCost | WastedCost]] = [(f"the grades of {count(row.answers)} answers", row)]
    parts += [] if row.in_vain is None else [(wasted_words(row.in_vain).removeprefix("for "), row.in_vain)]
    for told, one in parts:
        used = [_some(one.tokens, count), _some(one.usd, usd), _some(one.gpu_seconds / SECONDS_AN_HOUR, hours)]
        yield [f"of these {told}", "-", *used, *["-"] * 5]


def _some(value: float, shown: Callable[[float], str]) -> str:
    """A cost; a dash where there was none, so that a column of nothing else is left out."""
    return shown(value) if value else "-"
