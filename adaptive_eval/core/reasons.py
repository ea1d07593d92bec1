"""Why a model is set aside by the core itself, and why a run is finished."""

from collections.abc import Iterable

from adaptive_eval.core.look import VERDICTS, JudgedLook
from adaptive_eval.core.types import Cause, Lost, Reason, Verdict

SILENT = (
    "{timed_out} of the {trials} requests of a round ran out of time at every attempt, and time-outs count as answers "
    "only beside as many real ones: raise sampling.timeout if its answers take longer, or mend its server; the next "
    "start asks them again"
)
"""Why a model is set aside that hardly ever answers."""
UNPAID = (
    "the trials that it lacks do not fit the budget, which counts those that are there of earlier settings, too: raise "
    "the budget, and the next start asks for them"
)
"""Why a model that joins or comes back is set aside, if more was spent on it before than the budget leaves room for."""


def why_no_further(standing: JudgedLook, fits: bool, set_aside: Iterable[Lost]) -> Reason:
    """Why there is no further round; `fits`: whether the caps would allow one for every open comparison."""
    verdicts = {VERDICTS[each] for each in standing.verdicts.tolist()}
    unpaid = {lost.cause for lost in set_aside} == {Cause.BUDGET} and Verdict.BLOCKED in verdicts
    if unpaid or (Verdict.OPEN in verdicts and not fits):
        return Reason.BUDGET
    if Verdict.OUT_OF_REACH in verdicts or Verdict.OPEN in verdicts:
        return Reason.OUT_OF_REACH
    return Reason.BLOCKED if Verdict.BLOCKED in verdicts else Reason.SETTLED
