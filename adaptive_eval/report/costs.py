"""What a run has cost, in words."""

from collections.abc import Iterator, Sequence

from adaptive_eval.report.lines import amount, count, duration, several
from adaptive_eval.report.other_costs import summarize_other_costs
from adaptive_eval.report.results import GradingCost, OtherCostRow, Results, RunCost, WastedCost

SECONDS_PER_HOUR = 3600


def cost_line(results: Results, elapsed: float | None) -> str:
    """Trials, how many were allowed, and their cost."""
    cost = results.cost
    parts = [f"{count(cost.trials)} trials ({allowed_in_words(cost)})"]
    parts += unstored_answers(cost.beside)
    parts += usage_parts(cost.tokens, cost.usd, cost.gpu_seconds, " of requests")
    if cost.server_seconds is not None and results.server_time_is_paid:
        parts += held_in_words(cost.server_seconds, cost.server_gpu_seconds)
    parts += [] if elapsed is None else [duration(elapsed)]
    return ", ".join(parts)


def allowed_in_words(cost: RunCost) -> str:
    """How many trials were allowed; earlier starts may have allowed more than now."""
    allowed = count(cost.allowed_trials)
    return f"at most {allowed} were allowed" if cost.trials <= cost.allowed_trials else f"{allowed} are allowed now"


def unstored_answers(rows: Sequence[OtherCostRow]) -> list[str]:
    """Requested answers that never came, and those that were discarded, of all models that the run had. Neither count
    in `budget.trials`; empty if all came and are stored."""
    numbers = {
        kind: sum(row.answers for row in rows if (row.what == "discarded") is (kind == "discarded"))
        for kind in ("lost", "discarded")
    }
    return [several(number, f"{kind} answer") for kind, number in numbers.items() if number]


def held_in_words(seconds: float, gpu_seconds: float | None) -> list[str]:
    """The time for which servers were held."""
    hours = f" ({amount(gpu_seconds / SECONDS_PER_HOUR, ())} GPU hours)" if gpu_seconds else ""
    return [f"servers held for {duration(seconds)} in total{hours}"]


def further_costs(grading: GradingCost | None, rows: Sequence[OtherCostRow]) -> Iterator[tuple[str, str]]:
    """The cost of grades, and other spending that caps count, each in one line after a label."""
    if grading is not None:
        of_answers = f"{_usage(grading)} of it for the grades of {several(grading.answers, 'answer')}"
        parts = [of_answers] if grading.answers else []
        wasted = grading.in_vain
        parts += [] if wasted is None else [f"{_usage(wasted)} {wasted_words(wasted)}"]
        yield "grading", ", ".join(parts)
    trials, *used = (sum(getattr(row, of) for row in rows) for of in ("trials", "tokens", "usd", "counted_gpu_seconds"))
    if parts := [f"{count(trials)} trials"] * (trials > 0) + usage_parts(*used):
        yield "also", f"{', '.join(parts)} on {'; '.join(row.what for row in summarize_other_costs(rows))}"


def wasted_words(row: WastedCost) -> str:
    """Describe unreadable and replaced verdicts."""
    verdicts = f" ({count(row.verdicts)})" if row.verdicts else ""
    return f"for unreadable or replaced verdicts{verdicts}"


def _usage(row: GradingCost | WastedCost) -> str:
    return ", ".join(usage_parts(row.tokens, row.usd, row.gpu_seconds)) or "0 tokens"


def usage_parts(tokens: int, usd: float, gpu_seconds: float, gpu_hours_of: str = "") -> list[str]:
    """Tokens, dollars and GPU hours, without those that are zero."""
    parts = [f"{count(tokens)} tokens"] * (tokens > 0) + [f"${amount(usd, ())}"] * (usd > 0.0)
    return parts + [f"{amount(gpu_seconds / SECONDS_PER_HOUR, ())} GPU hours{gpu_hours_of}"] * (gpu_seconds > 0.0)
