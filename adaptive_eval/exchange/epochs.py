"""The controller for another harness, which brings epochs of several models and is told what to do with each.

A harness schedules every epoch of every question, in an order of its own, and has places for some of them at a time;
the controller asks for trials. The epochs of a question are alike before they are run, so that any of them can serve
the next trial: a trial whose epoch ended in an error is served by the next one. An epoch that no trial needs yet is
held in its place. Where those that are held have every place, and what is needed is behind them, one of them has to
give way: it is skipped, and its question has an epoch less. Nothing is ever run that was not asked for.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.load import decisions_from_mapping
from adaptive_eval.config.planning import plan_on
from adaptive_eval.core import Bench, Controller, Outcome, SetAside
from adaptive_eval.core.policies import Policy, View
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import Rubric, open_rubric
from adaptive_eval.record.build import build_results
from adaptive_eval.record.results import Results, why_stopped
from adaptive_eval.record.snapshot import RunSubject, take_snapshot
from adaptive_eval.store.usage import TrialUsage
from scorio.moments import IntArray

ATTEMPTS = 5
"""Epochs of a question that may end without a score in succession; then its trials cannot be had."""


class Epoch(NamedTuple):
    """One epoch of a question."""

    question: int
    number: int


class EpochDecision(StrEnum):
    """What becomes of an epoch that the harness is about to run."""

    RUN = "run"
    HOLD = "hold"
    SKIP = "skip"


class Epochs:
    """The epochs of one model."""

    def __init__(self, questions: int, epochs: int) -> None:
        self.done: set[Epoch] = set()
        """Epochs that have a score."""
        self.skipped = 0
        """Epochs that gave way."""
        self.lost = 0
        """Epochs that ended without a score."""
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

    def arrive(self, epoch: Epoch) -> EpochDecision:
        """The harness is about to run an epoch."""
        if epoch in self._serving or epoch in self.done:  # again, for reasons of its own
            return EpochDecision.RUN
        if epoch in self._seen:  # it was lost, and has another chance
            self._usable[epoch.question] += 1
        self._seen.add(epoch)
        if self._wanted[epoch.question]:
            self._serve(epoch)
            return EpochDecision.RUN
        self._held[epoch] = None
        if self._hurried and self.starved:
            self._skip(epoch)
            return EpochDecision.SKIP
        return EpochDecision.HOLD

    def released(self) -> Iterator[Epoch]:
        """Epochs that were held back and are needed now: each serves a trial from now on."""
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


MANY = 1 << 16
DecisionSettings = Mapping[str, object]
"""Sections of a configuration that decide, as in a file."""


@dataclass(frozen=True, slots=True)
class WithinEpochs:
    """A policy that asks for no more trials of a question than there are epochs for."""

    policy: Policy
    models: Sequence[Epochs]

    def allocate(self, view: View) -> IntArray:
        """The round of the policy that it wraps, cut where epochs run out."""
        left = np.stack([epochs.usable for epochs in self.models]) - view.issued
        allowed: IntArray = np.minimum(self.policy.allocate(view), np.maximum(left, 0))
        return allowed


def decisions_on(settings: DecisionSettings, names: Sequence[str], epochs: int) -> Decisions:
    """What is decided about so many epochs; unless it is said otherwise, each round has every question once."""
    allocation, trials = settings.get("allocation"), settings.get("trials")
    completed = dict(settings)
    if allocation is None or isinstance(allocation, Mapping):
        completed["allocation"] = {"policy": "unresolved_pairs", **(allocation or {})}
    if trials is None or (isinstance(trials, Mapping) and not trials.keys() & {"max", "epochs"}):
        completed["trials"] = {**(trials or {}), "max": epochs}
    decisions = decisions_from_mapping(completed, names)
    if decisions.trials.draw is not None:
        raise ConfigError("trials.draw asks some of the questions, but each epoch has all of them; remove it")
    if decisions.trials.max > epochs:
        raise ConfigError(
            f"trials.max is {decisions.trials.max}, but there are {epochs} epochs; raise these, or lower trials.max"
        )
    for name, cap in decisions.budget.model_dump().items():
        if cap is not None and name != "trials":
            raise ConfigError(f"budget.{name} cannot be kept here, since what a sample costs is not told; remove it")
    return decisions


def rubric_of(settings: DecisionSettings, names: Sequence[str]) -> Rubric:
    """The rubric, and an error for whatever is wrong with the settings before the number of epochs is known."""
    timeless = {name: section for name, section in settings.items() if name != "trials"}
    return open_rubric(decisions_from_mapping(timeless, names).rubric)


class EpochController:
    """One comparison of models on the same questions."""

    def __init__(self, names: Sequence[str], questions: Sequence[str], epochs: int, settings: DecisionSettings) -> None:
        self.decisions = decisions = decisions_on(settings, names, epochs)
        self.models = [Epochs(len(questions), epochs) for _ in names]
        self._questions = tuple(questions)
        self._subject = RunSubject(
            name="adaptive-eval",
            models=tuple(names),
            questions=self._questions,
            drawn=(None,) * len(names),  # no text is seen
            created=0.0,
            decisions=decisions.stated(),
        )
        bench = Bench(len(names), len(questions), np.array(open_rubric(decisions.rubric).weights, dtype=float))
        plan = plan_on(bench, decisions, names)
        self._controller = Controller(replace(plan, policy=WithinEpochs(plan.policy, self.models)))
        self._why: dict[int, str] = {}
        self._hand_out()

    def why_over(self, model: int) -> str | None:
        """Why no further epoch of a model is needed; None where one may be."""
        controller = self._controller
        over = controller.finished is not None or model in controller.set_aside
        if over and model not in self._why:  # worked out once: it is told with every epoch that is skipped
            aside, results = controller.set_aside.get(model), self.results()
            early = (
                f"the model was set aside: {aside.reason}" if aside is not None else "the budget allows no first look"
            )
            self._why[model] = early if results is None else why_stopped(self._subject.models[model], results)
        return self._why.get(model)

    def complete(self, model: int, epoch: Epoch, category: int) -> None:
        """An epoch has ended with a score."""
        trial = self.models[model].complete(epoch, category)
        if trial is not None:
            self._tell(Outcome(model, epoch.question, trial, category))
            self._hand_out()

    def end(self, model: int, epoch: Epoch) -> bool:
        """An epoch has ended; whether that was without a score, which may be the end of its model."""
        lost = self.models[model].end(epoch)
        if lost:
            self.give_up_if_hopeless(model)
        return lost

    def give_up_if_hopeless(self, model: int) -> None:
        """Set a model aside of which a trial cannot be had."""
        if (found := self.models[model].hopeless()) is not None:
            question, why = found
            self.set_aside(model, f"{why} for sample {self._questions[question]}")

    def set_aside(self, model: int, reason: str) -> None:
        """Go on without a model."""
        self._tell(SetAside(model, reason))
        self._hand_out()

    def results(self, began: float = 0.0, now: float = 0.0, stopped: bool = False) -> Results | None:
        """What was found, between two moments in seconds since 1970; None before the first look."""
        usages = [TrialUsage(trials=len(epochs.done)) for epochs in self.models]
        subject = replace(self._subject, created=began)
        snapshot = take_snapshot(subject, self._controller, usages, elapsed=now - began, now=now, stopped=stopped)
        return None if snapshot is None else build_results(snapshot)

    def _tell(self, event: Outcome | SetAside) -> None:
        if self._controller.finished is None:
            self._controller.tell([event])

    def _hand_out(self) -> None:
        """Pass on what the controller asks for, and tell it at once what has come already."""
        while asks := self._controller.ask(MANY):
            for model, question, trial, _ in asks:
                category = self.models[model].ask(question, trial)
                if category is not None:
                    self._tell(Outcome(model, question, trial, category))
