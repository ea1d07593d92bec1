"""What a run has spent besides the stored answers of today's models, and what grades have used of it, in words."""

from collections.abc import Sequence

from adaptive_eval.record.besides import besides
from adaptive_eval.record.lines import several
from adaptive_eval.record.results import GradingCost, OtherCostRow, WastedCost
from adaptive_eval.show.text import SECONDS_AN_HOUR, amount, count


def other_costs_in_short(rows: Sequence[OtherCostRow]) -> str | None:
    """What caps count of it, in one line; None where there is nothing."""
    if not rows:
        return None
    trials, tokens = (sum(getattr(row, of) for row in rows) for of in ("trials", "tokens"))
    usd, hours = sum(row.usd for row in rows), sum(row.counted_gpu_seconds for row in rows) / SECONDS_AN_HOUR
    parts = [f"{count(trials)} trials"] * (trials > 0) + [f"{count(tokens)} tokens"] * (tokens > 0)
    parts += [f"${amount(usd, ())}"] * (usd > 0.0) + [f"{amount(hours, ())} GPU hours"] * (hours > 0.0)
    return f"{', '.join(parts)} on {'; '.join(one.on for one in besides(rows))}" if parts else None


def grading_in_short(row: GradingCost) -> str:
    """What grades have used that a judge or a verifier was asked for, in one line."""
    told = [f"{_used(row)} of it for the grades of {several(row.answers, 'answer')}"] * (row.answers > 0)
    told += [] if row.in_vain is None else [f"{_used(row.in_vain)} {wasted_words(row.in_vain)}"]
    return ", ".join(told)


def wasted_words(row: WastedCost) -> str:
    """What was used for no grade."""
    verdicts = f" ({count(row.verdicts)})" if row.verdicts else ""
    return f"for verdicts that could not be read, or were replaced{verdicts}"


def _used(row: GradingCost | WastedCost) -> str:
    hours = row.gpu_seconds / SECONDS_AN_HOUR
    parts = [f"{count(row.tokens)} tokens"] + [f"${amount(row.usd, ())}"] * (row.usd > 0.0)
    return ", ".join(parts + [f"{amount(hours, ())} GPU hours"] * (hours > 0.0))
