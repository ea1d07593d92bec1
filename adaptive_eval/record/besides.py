"""Spending besides the stored answers of today's models, in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adaptive_eval.record.lines import safe_name
from adaptive_eval.record.results import OtherCostRow

WIDEST_NAME = 32
OF_SEVERAL = ("lost", "lost_verdicts", "unwanted")
"""Kinds of spending that are summed over all models."""


@dataclass(frozen=True, slots=True)
class Beside:
    """One line of spending that caps count, of one model or of several."""

    on: str
    """The purpose in words."""
    trials: int
    answers: int
    """Number of unwanted answers that were requested."""
    tokens: int
    usd: float
    gpu_seconds: float
    """GPU seconds of requests."""
    counted_gpu_seconds: float
    """GPU seconds that a cap counts."""


def besides(rows: Sequence[OtherCostRow]) -> tuple[Beside, ...]:
    """Convert the rows to lines for people, in their order; each kind of `OF_SEVERAL` is summed into one."""
    return tuple(_sum_group(group) for group in _group_by_line(rows))


def _group_by_line(rows: Sequence[OtherCostRow]) -> Iterator[list[OtherCostRow]]:
    told = set()
    for row in rows:
        if row.what not in OF_SEVERAL:
            yield [row]
        elif row.what not in told:
            told.add(row.what)
            yield [other for other in rows if other.what == row.what]


def _sum_group(group: Sequence[OtherCostRow]) -> Beside:
    subject = f"{len(group)} models" if len(group) > 1 else safe_name(group[0].model or "", WIDEST_NAME)
    return Beside(
        on=_purpose(group[0].what, subject),
        trials=sum(row.trials for row in group),
        answers=sum(row.answers for row in group),
        tokens=sum(row.tokens for row in group),
        usd=sum(row.usd for row in group),
        gpu_seconds=sum(row.gpu_seconds for row in group),
        counted_gpu_seconds=sum(row.counted_gpu_seconds for row in group),
    )


def _purpose(what: str, subject: str) -> str:
    match what:
        case "left":
            return f"{subject}, which the run has no more"
        case "lost":
            return f"answers of {subject} that never came"
        case "lost_verdicts":
            return f"verdicts on answers of {subject} that never came"
        case "unwanted":
            return f"answers of {subject} that were asked ahead and never wanted"
        case "regrade":
            return "verdicts of a regrade that did not come to its end"
        case "opponent":
            return f"answers of {subject}, with which all others are compared"
        case "greedy":
            return "greedy answers, which came first (R0)"
        case _:
            return "the verifier before any answer"
