"""Times of a judge's or verifier's verdicts on answers.

A verdict is requested as soon as its answer arrives, and takes none of the model's slots. A round is complete when its
last verdict arrives: one reply after its last answer, or later if the judge has more work than slots. That work is
modelled as a fluid: a number of seconds per answer, one round after the other.
"""

from typing import NamedTuple

import numpy as np

from scorio.moments import FloatArray


class VerdictTimes(NamedTuple):
    """Times of verdicts; zero if no model is asked for them."""

    reply: float = 0.0
    """Seconds from an answer's arrival to its verdict, without queueing."""
    each: float = 0.0
    """Seconds between two verdicts of a fully loaded judge, the slowest of several."""

    def last_verdict(self, last: float, first: float, answers: float) -> float:
        """Time of the last verdict on `answers` that arrive from `first` to `last`, by a judge without other work."""
        return max(last + self.reply, first + answers * self.each) if answers else last


NO_VERDICTS = VerdictTimes()


class JudgeQueue:
    """Queue of a judge, first come, first served."""

    def __init__(self, times: VerdictTimes) -> None:
        self._times = times
        self._free = 0.0

    def enqueue(self, now: float, seconds: FloatArray) -> float:
        """Queue answers requested now, which take these seconds; returns when they are judged if none waits for a slot.
        Answers that take no time are judged already."""
        took = seconds[seconds > 0.0]
        if not len(took) or not self._times.reply:
            return now
        self._free = max(self._free, now + float(np.min(took))) + len(took) * self._times.each
        return self._free

    def last_verdict(self, last: float, judged: float) -> float:
        """Time of the last verdict, if the last answer arrives at `last` and the others are judged at `judged`."""
        return max(last + self._times.reply, judged)
