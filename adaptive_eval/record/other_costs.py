"""Spending besides the stored answers of the current models, in words."""

from collections.abc import Sequence
from dataclasses import replace

from adaptive_eval.record.lines import safe_name
from adaptive_eval.record.results import OtherCostRow

LONGEST_NAME = 32
PURPOSES = {
    "left": "{}, which the run has no more",
    "lost": "answers of {} that never came",
    "lost_verdicts": "verdicts on answers of {} that never came",
    "regrade": "verdicts of a regrade that did not come to its end",
    "opponent": "answers of {}, with which all others are compared",  # in results of earlier versions
    "greedy": "greedy answers, which came first (R0)",
    "baseline": "the verifier before any answer",
}
"""What each kind of spending was for; {} are the models."""
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
    return replace(
        first,
        what=PURPOSES.get(first.what, PURPOSES["baseline"]).format(subject),
        model=None if others else first.model,
        **sums,
    )
