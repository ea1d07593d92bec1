"""Times of the verdicts of a judge or a verifier, beside the answers that they are of.

A verdict is asked for as soon as its answer has come, and takes none of the model's slots. A round is complete when the
last verdict is there: that takes one reply after its last answer, or longer where the judge has more to do than it has
slots for. Its work is taken as a fluid: so many seconds of it an answer, one round after the other.
"""

from typing import NamedTuple

import numpy as np

from scorio.moments import FloatArray


class VerdictTimes(NamedTuple):
    """Times of verdicts; zero if nobody is asked for them."""

    reply: float = 0.0
    """Seconds from when an answer has come until its verdict is there, where nobody waits."""
    each: float = 0.0
    """Seconds between two verdicts where the judge has as much to do as it can: of the slowest of several."""

    def all_judged(self, last: float, first: float, answers: float) -> float:
        """When so many answers are judged that come between `first` and `last`, by a judge that has nothing else."""
        return max(last + self.reply, first + answers * self.each) if answers else last


NO_VERDICTS = VerdictTimes()


class JudgeQueue:
    """Queue of a judge, first come, first served."""

    def __init__(self, times: VerdictTimes) -> None:
        self._times = times
        self._free = 0.0

    def done(self, now: float, seconds: FloatArray) -> float:
        """When answers are judged that are asked for now and take so long, if none of them waits for a slot; those that
        take no time are there, and have been judged."""
        took = seconds[seconds > 0.0]
        if not len(took) or not self._times.reply:
            return now
        self._free = max(self._free, now + float(np.min(took))) + len(took) * self._times.each
        return self._free

    def after(self, last: float, judged: float) -> float:
        """When the verdict on the last answer is there, too."""
        return max(last + self._times.reply, judged)
