"""The costs of a run in a table."""

from collections.abc import Callable, Iterator
from functools import partial

from adaptive_eval.report.glossary import GLOSSARY
from adaptive_eval.report.lines import count, duration
from adaptive_eval.report.other_costs import summarize_other_costs
from adaptive_eval.report.results import GradingCost, ModelRow, OtherCostRow, Results, RunCost, WastedCost
from adaptive_eval.report.view import RunView
from adaptive_eval.show.summary import allowed_in_words, unstored_answers, wasted_words
from adaptive_eval.show.text import SECONDS_PER_HOUR, Block, Table, amount


def cost_blocks(view: RunView, results: Results) -> Iterator[Block]:
    """A row per model and kind of other spending, their sum, and explanations."""
    retries: dict[str, int] = {}
    for row in view.traffic:
        retries[row.model] = retries.get(row.model, 0) + row.retries
    cost = results.cost
    others = summarize_other_costs(cost.beside)
    spent: list[ModelRow | OtherCostRow] = [*results.models, *others]
    usd = partial(amount, among=[row.usd for row in spent])
    hours = partial(amount, among=[row.gpu_seconds / SECONDS_PER_HOUR for row in spent])
    paid = results.server_time_is_paid
    rows = [_cost_row(row, retries.get(row.name, 0), usd, hours, paid=paid) for row in results.models]
    if cost.grading is not None:
        rows += _grading_costs(cost.grading, usd, hours)
    rows += [_other_cost_row(row, usd, hours, paid=paid) for row in others]
    total = ["all", count(cost.asked), _or_dash(cost.in_all("tokens"), count)]
    total += [_or_dash(cost.in_all("usd"), usd), _or_dash(cost.in_all("gpu_seconds") / SECONDS_PER_HOUR, hours)]
    total += _server_time(cost, hours, paid=paid)
    rows.append([*total, "", "", count(sum(retries.values()))])
    head = ["model", "answers", "tokens", "USD", "GPU hours of requests", "server time", "GPU hours held"]
    head += ["truncated", "no grade", "retries"]
    unstored = "".join(f", and {answers}" for answers in unstored_answers(cost.beside))
    notes = (
        f"Trials: {count(cost.trials)}{unstored}; {allowed_in_words(cost)}. Looks: {len(view.looks)}. "
        f"Duration: {duration(view.elapsed)}."
    )
    notes += f" Server time: {GLOSSARY['server_time'].text}" if paid and cost.server_seconds is not None else ""
    yield Table.of("Cost by model", head, rows)
    yield notes + _cached_tokens(view)


def _cached_tokens(view: RunView) -> str:
    prompts = sum(row.prompt_tokens for row in view.traffic)
    cached = sum(row.cached_tokens for row in view.traffic)
    if not cached:
        return ""
    return f" Of {count(prompts)} prompt tokens, {count(cached)} ({cached / prompts:.0%}) came from a server's cache."


def _server_time(row: ModelRow | OtherCostRow | RunCost, hours: Callable[[float], str], *, paid: bool) -> list[str]:
    if not paid or row.server_seconds is None:
        return ["-", "-"]
    return [duration(row.server_seconds), _or_dash((row.server_gpu_seconds or 0.0) / SECONDS_PER_HOUR, hours)]


def _cost_row(
    row: ModelRow, retries: int, usd: Callable[[float], str], hours: Callable[[float], str], *, paid: bool
) -> list[str]:
    share = row.signals.get("truncated", 0) / row.stored_trials if row.stored_trials else 0.0
    if row.recorded is not None:
        return [row.name, f"recorded: {row.recorded}", *["-"] * 5, "-", "-", "-"]
    return [
        row.name,
        count(row.stored_trials),
        _or_dash(row.tokens, count),
        _or_dash(row.usd, usd),
        _or_dash(row.gpu_seconds / SECONDS_PER_HOUR, hours),
        *_server_time(row, hours, paid=paid),
        f"{share:.1%}",
        count(row.ungraded),
        count(retries),
    ]


def _other_cost_row(
    row: OtherCostRow, usd: Callable[[float], str], hours: Callable[[float], str], *, paid: bool
) -> list[str]:
    used = [_or_dash(row.trials + row.answers, count), _or_dash(row.tokens, count), _or_dash(row.usd, usd)]
    used += [_or_dash(row.gpu_seconds / SECONDS_PER_HOUR, hours), *_server_time(row, hours, paid=paid)]
    lost = f" ({count(row.answers)} of them lost)" if row.trials and row.answers else ""
    return [row.what + lost, *used, *["-"] * 3]


def _grading_costs(row: GradingCost, usd: Callable[[float], str], hours: Callable[[float], str]) -> Iterator[list[str]]:
    parts: list[tuple[str, GradingCost | WastedCost]] = [(f"the grades of {count(row.answers)} answers", row)]
    parts += [] if row.in_vain is None else [(wasted_words(row.in_vain).removeprefix("for "), row.in_vain)]
    for label, cost in parts:
        used = [
            _or_dash(cost.tokens, count),
            _or_dash(cost.usd, usd),
            _or_dash(cost.gpu_seconds / SECONDS_PER_HOUR, hours),
        ]
        yield [f"of these {label}", "-", *used, *["-"] * 5]


def _or_dash(value: float, shown: Callable[[float], str]) -> str:
    return shown(value) if value else "-"
