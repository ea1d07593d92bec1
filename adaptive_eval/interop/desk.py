"""The controller behind a desk: another harness brings epochs of several models, and is told what to do with each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.load import decisions_of
from adaptive_eval.core import Bench, Controller, Outcome, SetAside
from adaptive_eval.core.policies import Policy, View
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import Rubric, open_rubric
from adaptive_eval.interop.epochs import Epoch, Epochs
from adaptive_eval.planning import plan_on
from adaptive_eval.results import Results, Subject, build_results, take_snapshot
from adaptive_eval.results.stopping import why_stopped
from adaptive_eval.scheduler.tallies import Tally
from scorio.moments import IntArray

MANY = 1 << 16
Settings = Mapping[str, object]
"""Sections of a configuration that decide, as in a file."""


@dataclass(frozen=True, slots=True)
class Within:
    """A policy that asks for no more trials of a question than there are epochs for."""

    policy: Policy
    models: Sequence[Epochs]

    def allocate(self, view: View) -> IntArray:
        """The other policy's round, cut where epochs run out."""
        left = np.stack([epochs.usable for epochs in self.models]) - view.issued
        allowed: IntArray = np.minimum(self.policy.allocate(view), np.maximum(left, 0))
        return allowed


def decisions_on(settings: Settings, names: Sequence[str], epochs: int) -> Decisions:
    """What is decided about so many epochs; unless it is said otherwise, each round has every question once."""
    allocation, trials = settings.get("allocation"), settings.get("trials")
    completed = dict(settings)
    if allocation is None or isinstance(allocation, Mapping):
        completed["allocation"] = {"policy": "unresolved_pairs", **(allocation or {})}
    if trials is None or (isinstance(trials, Mapping) and not trials.keys() & {"max", "epochs"}):
        completed["trials"] = {**(trials or {}), "max": epochs}
    decisions = decisions_of(completed, names)
    if decisions.trials.max > epochs:
        raise ConfigError(
            f"trials.max is {decisions.trials.max}, but there are {epochs} epochs; raise these, or lower trials.max"
        )
    for name, cap in decisions.budget.model_dump().items():
        if cap is not None and name != "trials":
            raise ConfigError(f"budget.{name} cannot be kept here, since what a sample costs is not told; remove it")
    return decisions


def rubric_of(settings: Settings, names: Sequence[str]) -> Rubric:
    """The rubric, and an error for whatever is wrong with the settings before the number of epochs is known."""
    timeless = {name: section for name, section in settings.items() if name != "trials"}
    return open_rubric(decisions_of(timeless, names).rubric)


class Desk:
    """One comparison of models on the same questions."""

    def __init__(self, names: Sequence[str], questions: Sequence[str], epochs: int, settings: Settings) -> None:
        self.decisions = decisions = decisions_on(settings, names, epochs)
        self.models = [Epochs(len(questions), epochs) for _ in names]
        self._questions = tuple(questions)
        self._subject = Subject(
            name="adaptive-eval",
            models=tuple(names),
            questions=self._questions,
            sampled=(False,) * len(names),  # no text is seen: nothing is to be warned of when answers repeat
            created=0.0,
            decisions=decisions.stated(),
        )
        bench = Bench(len(names), len(questions), np.array(open_rubric(decisions.rubric).weights, dtype=float))
        plan = plan_on(bench, decisions, names)
        self._controller = Controller(replace(plan, policy=Within(plan.policy, self.models)))
        self._why: dict[int, str] = {}
        self._hand_out()

    def why_over(self, model: int) -> str | None:
        """Why no further epoch of a model is needed; None where one may be."""
        controller = self._controller
        over = controller.finished is not None or model in controller.set_aside
        if over and model not in self._why:  # worked out once: it is told with every epoch that is skipped
            aside, results = controller.set_aside.get(model), self.results()
            early = f"the model was set aside: {aside}" if aside is not None else "the budget allows no first look"
            self._why[model] = early if results is None else why_stopped(self._subject.models[model], results)
        return self._why.get(model)

    def complete(self, model: int, epoch: Epoch, category: int) -> None:
        """An epoch has come with a score."""
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
        tallies = [Tally(trials=len(epochs.done)) for epochs in self.models]
        subject = replace(self._subject, created=began)
        snapshot = take_snapshot(subject, self._controller, tallies, elapsed=now - began, now=now, stopped=stopped)
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
