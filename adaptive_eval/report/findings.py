"""What a run has found, in words, as one value: every display draws its fields."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adaptive_eval.core.types import Reason
from adaptive_eval.report.costs import cost_line, further_costs, held_in_words, unstored_answers, usage_parts
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.finding import counted_sentence, finding
from adaptive_eval.report.gate import OPEN, gate_outcome
from adaptive_eval.report.gate import UNDECIDED as UNDECIDED_GATE
from adaptive_eval.report.lines import count, duration, several
from adaptive_eval.report.needs import UNDECIDED, need_sentence, undecided_pair
from adaptive_eval.report.next_steps import Advice, next_steps
from adaptive_eval.report.other_costs import stored_cost
from adaptive_eval.report.results import Results
from adaptive_eval.report.status import Used
from adaptive_eval.report.view import RunView
from adaptive_eval.report.words import promise_line

SHOWN_PAIRS = 2


@dataclass(frozen=True, slots=True)
class Findings:
    """What a run has found."""

    state: str
    """running, finished, stopped or killed; of a gate that has ended its outcome."""
    headline: tuple[str, ...]
    """The finding in sentences; before the first look how many answers there are."""
    ended: str | None
    """How it ended; None while it goes on, and where a gate's headline has said it."""
    needs: tuple[str, ...] = ()
    """What further undecided pairs take, the nearest to a decision first, and how many comparisons are decided."""
    decided: str = ""
    """How many comparisons are decided."""
    counted: str | None = None
    """Which answers the scores include, if it is not all that were asked."""
    promise: str | None = None
    cost: str = ""
    """Empty if nothing was asked."""
    costs: tuple[tuple[str, str], ...] = ()
    """The cost of grades, and other spending that caps count, each after a label."""
    steps: tuple[Advice, ...] = ()


def find(
    results: Results | None,
    used: Used,
    elapsed: float | None,
    ended: str | None = None,
    steps: Sequence[Advice] = (),
) -> Findings:
    """What a run has found, and how it `ended`, if it is over; `elapsed` is None if there is no time to show."""
    if results is None:
        return _find_unjudged(used, elapsed, ended, steps)
    headline, outcome = finding(results), gate_outcome(results.gate)
    is_said = results.run.reason == Reason.ALARM and bool(results.alarms)
    is_said |= outcome is not None and ended is not None and ended.startswith(headline)
    return Findings(
        state=outcome if outcome not in (None, OPEN) and results.run.status == "finished" else results.run.status,
        headline=headline,
        ended=None if is_said else ended,
        needs=tuple(_needs(results)),
        decided=decided_text(results),
        counted=counted_sentence(results),
        promise=promise_line(results),
        cost=cost_line(results, elapsed),
        costs=tuple(further_costs(results.cost.grading, results.cost.beside)),
        steps=tuple(steps),
    )


def _find_unjudged(used: Used, elapsed: float | None, ended: str | None, steps: Sequence[Advice]) -> Findings:
    """The same before the first look."""
    trials, ungraded = used.spent.trials, used.ungraded
    graded = trials - ungraded
    headline = [f"There is no look yet: {several(graded, 'trial')} {'is' if graded == 1 else 'are'} graded."]
    if ungraded:
        headline.append(f"{several(ungraded, 'more answer')} {'has' if ungraded == 1 else 'have'} no grade.")
    held = held_in_words(used.held_seconds, used.held_gpu_seconds) if used.held_gpu_seconds else []
    parts = [*unstored_answers(used.beside), *usage_parts(*stored_cost(used.spent), " of requests"), *held]
    parts += [] if elapsed is None else [duration(elapsed)]
    states = {UNDECIDED_GATE: UNDECIDED_GATE, "Killed": "killed", "Finished": "finished"}
    state = next((state for begin, state in states.items() if (ended or "").startswith(begin)), "stopped")
    return Findings(
        state="running" if ended is None else state,
        headline=tuple(headline),
        ended=ended,
        cost=", ".join([f"{count(trials)} trials", *parts]) if trials or used.beside else "",
        costs=tuple(further_costs(used.grading, used.beside)),
        steps=tuple(steps),
    )


def findings_of_end(ended: Ended) -> Findings:
    """What a run has found that has just ended."""
    return find(ended.results, ended.status.used, ended.status.elapsed, ended.why, [*next_steps(ended)])


def findings_of_view(view: RunView) -> Findings:
    """What a stored run has found."""
    return find(view.results, view.used, view.elapsed, view.ended, view.next_steps)


def decided_text(results: Results) -> str:
    """Number of decided comparisons in words."""
    done = sum(pair.verdict not in UNDECIDED for pair in results.pairs)
    what = "comparisons decided" if results.compares else "scores as precise as required"
    return f"{done} of {len(results.pairs):,} {what}"


def _needs(results: Results) -> list[str]:
    """Needs of the undecided pairs that the headline does not name, the nearest to a decision first."""
    if results.run.reason == Reason.ALARM:
        return []
    named = undecided_pair(results)
    undecided = sorted(
        (pair for pair in results.pairs if pair.verdict in UNDECIDED and pair is not named),
        key=lambda pair: math.inf if pair.trials_needed is None else pair.trials_needed,
    )
    lines = [f"{need_sentence(results, pair)}." for pair in undecided[:SHOWN_PAIRS]]
    further = len(undecided) - SHOWN_PAIRS
    more = f"and {further} more: see the report; " if further > 0 else ""
    return [*lines, f"{more}{decided_text(results)}."] if undecided or named is not None else []
