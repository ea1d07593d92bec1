"""Spending besides the stored answers of the current models, in words."""

from collections.abc import Sequence
from dataclasses import replace

from adaptive_eval.record.lines import safe_name
from adaptive_eval.record.results import OtherCostRow

LONGEST_NAME = 32
SUMMED_KINDS = ("lost", "lost_verdicts")
"""Kinds of spending that are summed over all models."""
SUMMED_FIELDS = ("trials", "answers", "tokens", "usd", "gpu_seconds", "counted_gpu_seconds")


def summarize_other_costs(rows: Sequence[OtherCostRow]) -> tuple[OtherCostRow, ...]:
    """Rows for people: `what` is the purpose in words, and each of `SUMMED_KINDS` is summed into one row."""
    groups: dict[str | int, list[OtherCostRow]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row.what if row.what in SUMMED_KINDS else number, []).append(row)
    return tuple(map(_sum_group, groups.values()))


def _sum_group(group: Sequence[OtherCostRow]) -> OtherCostRow:
    first, *others = group
    subject = f"{len(group)} models" if others else safe_name(first.model or "", LONGEST_NAME)
    sums = {name: sum(getattr(row, name) for row in group) for name in SUMMED_FIELDS}
    return replace(first, what=_purpose(first.what, subject), model=None if others else first.model, **sums)


def _purpose(what: str, subject: str) -> str:
    match what:
        case "left":
            return f"{subject}, which the run has no more"
        case "lost":
            return f"answers of {subject} that never came"
        case "lost_verdicts":
            return f"verdicts on answers of {subject} that never came"
        case "regrade":
            return "verdicts of a regrade that did not come to its end"
        case "opponent":  # in results of earlier versions
            return f"answers of {subject}, with which all others are compared"
        case "greedy":
            return "greedy answers, which came first (R0)"
        case _:
            return "the verifier before any answer"
