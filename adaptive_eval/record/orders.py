"""How often a judge that compares two answers goes by their order.

Each comparison is asked in both orders, and counts as a tie where these disagree.
"""

from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.judge import Judge
from adaptive_eval.record.lines import several
from adaptive_eval.store import RunReader


def order_sentence(reader: RunReader, config: RunConfig) -> str | None:
    """Say how many comparisons depend on the order, and towards which place; None if nothing was compared."""
    grader = config.grader
    if not isinstance(grader, Judge) or grader.against is None:
        return None
    counts = reader.comparisons()
    compared = sum(one.trials for one in counts)
    if not compared:
        return None
    dependent = sum(one.order_dependent * one.trials for one in counts) / compared
    towards = sum(one.prefers_first * one.trials for one in counts) / compared
    place = "first" if towards > 0 else "second"
    leaning = f", by {abs(towards):.1%} in favour of the {place} place" if round(abs(towards), 3) else ""
    of_order = f"{dependent:.1%} depend on the order of the two answers, and count as ties{leaning}"
    return f"Of {several(compared, 'comparison')} {of_order}."
