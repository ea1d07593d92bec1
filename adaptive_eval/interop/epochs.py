"""Which epoch of a question serves which trial of one model, when a harness brings its epochs one by one.

A harness schedules every epoch of every question, in an order of its own, and has places for some of them at a time;
the controller asks for trials. The epochs of a question are alike before they are run, so that any of them can serve
the next trial: a trial whose epoch ended in an error is served by the next one. An epoch that no trial needs yet is
held in its place. Where those that are held have every place, and what is needed is behind them, one of them has to
give way: it is skipped, and its question has an epoch less. Nothing is ever run that was not asked for.
"""

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ATTEMPTS = 5
"""Epochs of a question that may end without a score in succession; then its trials cannot be had."""


class Epoch(NamedTuple):
    """One epoch of a question."""

    question: int
    number: int


class Arrival(StrEnum):
    """What becomes of an epoch that the harness is about to run."""

    RUN = "run"
    HOLD = "hold"
    SKIP = "skip"


class Epochs:
    """The epochs of one model."""

    def __init__(self, questions: int, epochs: int) -> None:
        self.done: set[Epoch] = set()
        """Those that have a score."""
        self.skipped = 0
        """Those that gave way."""
        self.lost = 0
        """Those that ended without a score."""
        self._usable = np.full(questions, epochs, dtype=np.int64)
        """By question: epochs that have served a trial, or may."""
        self._asked = np.zeros(questions, dtype=np.int64)
        self._wanted: list[deque[int]] = [deque() for _ in range(questions)]
        """By question: trials that were asked for and that no epoch serves."""
        self._spare: list[deque[int]] = [deque() for _ in range(questions)]
        """By question: categories of epochs that came with a score before a trial needed one."""
        self._seen: set[Epoch] = set()
        self._serving: dict[Epoch, int] = {}
        self._held: dict[Epoch, None] = {}
        self._failures = [0] * questions
        """By question: epochs that ended without a score since one had a score."""
        self._hurried = False
        """Somebody had to give way, and what is needed has not come since."""

    @property
    def usable(self) -> NDArray[np.int64]:
        """(M,): the trials of each question that can be had in all."""
        return self._usable

    def ask(self, question: int, trial: int) -> int | None:
        """A trial is needed: its category, where an epoch has come for it already."""
        self._asked[question] += 1
        if self._spare[question]:
            return self._spare[question].popleft()
        self._wanted[question].append(trial)
        return None

    def arrive(self, epoch: Epoch) -> Arrival:
        """The harness is about to run an epoch."""
        if epoch in self._serving or epoch in self.done:  # again, for reasons of its own
            return Arrival.RUN
        if epoch in self._seen:  # it was lost, and has another chance
            self._usable[epoch.question] += 1
        self._seen.add(epoch)
        if self._wanted[epoch.question]:
            self._serve(epoch)
            return Arrival.RUN
        self._held[epoch] = None
        if self._hurried and self.starved:
            self._skip(epoch)
            return Arrival.SKIP
        return Arrival.HOLD

    def released(self) -> Iterator[Epoch]:
        """Those that were held and are needed now: they serve a trial from now on."""
        for epoch in list(self._held):
            if self._wanted[epoch.question]:
                del self._held[epoch]
                self._serve(epoch)
                yield epoch

    def complete(self, epoch: Epoch, category: int) -> int | None:
        """An epoch has a score: the trial that it serves; None where it had one before, or no trial needs it yet."""
        if epoch in self.done:
            return None
        self.done.add(epoch)
        self._seen.add(epoch)
        self._failures[epoch.question] = 0
        trial = self._serving.pop(epoch, None)
        if trial is None:  # taken over from an earlier attempt of the harness
            wanted = self._wanted[epoch.question]
            trial = wanted.popleft() if wanted else None
        if trial is None:
            self._spare[epoch.question].append(category)
        return trial

    def end(self, epoch: Epoch) -> bool:
        """An epoch has ended; whether that was without a score, so that its trial is needed again."""
        trial = self._serving.pop(epoch, None)
        if trial is None:
            return False
        self.lost += 1
        self._usable[epoch.question] -= 1
        self._wanted[epoch.question].appendleft(trial)
        self._failures[epoch.question] += 1
        return True

    def leave(self, epoch: Epoch) -> None:
        """An epoch that was held is no longer there."""
        if epoch in self._held:
            del self._held[epoch]
            self._usable[epoch.question] -= 1

    def close(self) -> None:
        """No further epoch will come, whatever became of those that have not."""
        for question, (wanted, spare) in enumerate(zip(self._wanted, self._spare, strict=True)):
            self._usable[question] = self._asked[question] - len(wanted) + len(spare)

    def give_way(self) -> Epoch | None:
        """Skip one of those that are held, whose question can best spare it, if nothing else can go on."""
        if not self.starved:
            return None
        left = self._usable - self._asked
        epoch = max(self._held, key=lambda one: (left[one.question], -one.question))
        self._skip(epoch)
        self._hurried = True
        return epoch

    @property
    def starved(self) -> bool:
        """Trials are needed, nothing is being run, and those that are held cannot serve them."""
        return bool(self._held) and not self._serving and any(self._wanted)

    def hopeless(self) -> tuple[int, str] | None:
        """A question of which a trial cannot be had, and why, if there is one."""
        for question, failures in enumerate(self._failures):
            if failures >= ATTEMPTS:
                return question, f"{failures} epochs in succession ended without a score"
        short = np.flatnonzero(self._usable < self._asked)
        return (int(short[0]), "no further epoch is left") if len(short) else None

    def _serve(self, epoch: Epoch) -> None:
        self._serving[epoch] = self._wanted[epoch.question].popleft()
        self._hurried = False

    def _skip(self, epoch: Epoch) -> None:
        del self._held[epoch]
        self._usable[epoch.question] -= 1
        self.skipped += 1
