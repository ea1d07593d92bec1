"""Alarms about the answers of a model: they follow from the log, as looks do.

At the first look they are a function of the trials of the opening round alone, whatever the order of the answers and
however often the run is killed. Later looks find answers that repeat among the trials that they judge. A model whose
answers repeat is asked no more. Other alarms are raised by the core (`core.answer_alarms`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.answer_alarms import AnswerAlarm
from adaptive_eval.machine.facts import lowest_categories
from adaptive_eval.machine.records import ALARM, Note
from adaptive_eval.machine.repeats import (
    Sampled,
    find_repeats,
    repeats_sentence,
    watched_questions,
)
from adaptive_eval.machine.trial import Trial
from adaptive_eval.machine.usage import AnswerFault, TrialUsage, fault_sentence

SEARCH_GROWTH = 1.1
"""Answers are searched for repeats again when a model has so many times as many trials."""
StopOn = Literal["all", "any", "never"]
"""Whose alarms end a run: those of all models, of any, of none."""


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """Settings that alarms depend on besides the plan."""

    stop_on: StopOn = "all"
    sampled: Mapping[int, Sampled | None] = field(default_factory=dict)
    """How each model's answers are sampled; None if equal ones are normal."""


class Alarms:
    """Sums over the answers of each model, and the alarms about them."""

    def __init__(self, *, repeats_count: bool = False) -> None:
        """`repeats_count`: an import has counted repeated answers as samples."""
        self._repeats_count = repeats_count
        self.usages: dict[int, TrialUsage] = {}
        """By model."""
        self.stopped: dict[int, str] | None = None
        """Alarms, by model, that end the run; None if it goes on."""
        self._settings = AlarmSettings()
        self._questions: Sequence[str] = ()
        self._watched: frozenset[int] = frozenset()
        self._lowest: frozenset[int] = frozenset()
        """Categories of the lowest weight."""
        self._opening: Mapping[int, NDArray[np.int32]] = {}
        """Trials (M,) of each model in the first round."""
        self._opening_only: dict[int, TrialUsage] = {}
        """Sums over the opening answers of models that have later ones, too."""
        self._is_judged = False
        """Whether the first look was taken."""
        self._searched: dict[int, int] = {}
        """Trials of each model among which repeats were searched for last."""
        self.repeating: dict[int, str] = {}
        """The alarms about answers that repeat, by model."""

    def use(
        self,
        settings: AlarmSettings,
        questions: Sequence[str],
        opening: Mapping[int, NDArray[np.int32]],
        weights: NDArray[np.float64],
    ) -> None:
        """Go on with these settings; `questions`: their keys; `opening`: trials of each model in the first round;
        `weights`: those of the categories."""
        self._settings, self._opening, self._lowest = settings, opening, lowest_categories(weights)
        if questions != self._questions:
            self._questions, self._watched = questions, watched_questions(questions)

    def add(self, trial: Trial) -> None:
        """Add a graded answer, in the order of the log."""
        usage = self.usage(trial.model)
        if not self._is_judged and (opening := self._opening.get(trial.model)) is not None:
            is_opening = trial.number < opening.item(trial.question)
            apart = self._opening_only.get(trial.model)
            if apart is None and not is_opening:
                self._opening_only[trial.model] = usage.copy()
            elif apart is not None and is_opening:
                apart.add(trial, self._watched, self._lowest)
        usage.add(trial, self._watched, self._lowest)

    def usage(self, model: int) -> TrialUsage:
        """The sums of a model."""
        usage = self.usages.get(model)
        if usage is None:
            usage = self.usages[model] = TrialUsage()
        return usage

    def restore(self, note: Note) -> None:
        """Take in an alarm that the log has: repeats that were found stay, though later answers differ."""
        if note.model is not None and note.body.get("fault") == AnswerFault.REPEATED:
            self.repeating.setdefault(note.model, str(note.body.get("text", "")))

    @property
    def void(self) -> Mapping[int, str]:
        """Models of which nothing is decided while the run goes on, since their answers repeat, each with its alarm."""
        counts = self._settings.stop_on == "never" or self._repeats_count
        return {} if counts or self.stopped is not None else self.repeating

    def on_look(
        self, models: Collection[int], judged: Mapping[int, NDArray[np.integer]], *, is_last: bool
    ) -> list[Note]:
        """The alarms at a look that judges so many trials (M,) of each model; those about `models` may end the run.
        `is_last`: no further look comes."""
        raised: list[Note] = []
        if not self._is_judged:
            self._is_judged = True
            raised = [*self._judge_opening(models)]
            self._stop_if_due(raised, models)
            self._opening_only.clear()
        later = [*self._find_later_repeats(judged, growth=1.0 if is_last else SEARCH_GROWTH)]
        self._stop_if_due([note for note in later if note.model in models], models)
        return raised + later

    def _judge_opening(self, models: Collection[int]) -> Iterator[Note]:
        """Yield at most one alarm for each of these models: a fault of its answers, or else repeated answers."""
        for model in models:
            usage = self._opening_only.get(model, self.usages.get(model, TrialUsage()))
            repeats = find_repeats(usage.watch, self._settings.sampled.get(model))
            if (fault := usage.answers.fault) is not None:
                yield alarm_note(model, fault, fault_sentence(fault, usage.answers.number))
            elif repeats is not None and repeats.is_certain:
                self.repeating[model] = repeats_sentence(repeats)
                yield alarm_note(model, AnswerFault.REPEATED, self.repeating[model], since={})  # from the first on

    def _find_later_repeats(self, judged: Mapping[int, NDArray[np.integer]], growth: float) -> Iterator[Note]:
        for model, trials in judged.items():
            number = int(trials.sum())
            if number >= growth * self._searched.get(model, 0):
                self._searched[model] = number
                usage = self.usages.get(model, TrialUsage())
                repeats = find_repeats(usage.watch, self._settings.sampled.get(model), trials.tolist())
                if repeats is not None and repeats.is_certain:
                    self.repeating.setdefault(model, repeats_sentence(repeats))
            if model in self.repeating:
                yield alarm_note(model, AnswerFault.REPEATED, self.repeating[model], since={})  # from the first on

    def _stop_if_due(self, raised: Sequence[Note], models: Collection[int]) -> None:
        """End the run if the settings end it by these alarms about these models."""
        stop_on = self._settings.stop_on
        is_due = stop_on == "any" or (stop_on == "all" and len(raised) == len(models))
        if raised and is_due and self.stopped is None:
            self.stopped = {note.model: str(note.body["text"]) for note in raised if note.model is not None}


def alarm_note(model: int, fault: str, text: str, **body: object) -> Note:
    """An alarm as it goes into the log."""
    return Note(ALARM, model, {"fault": str(fault), "text": text, **body})


def core_alarm_note(alarm: AnswerAlarm, model: int, questions: Sequence[str]) -> Note:
    """An alarm of the core; `questions`: their keys, by which a change says where it begins."""
    if alarm.since is None:
        return alarm_note(model, alarm.kind.signal, alarm.reason)
    keys = questions or [*map(str, range(len(alarm.since)))]
    return alarm_note(model, alarm.kind.signal, alarm.reason, since=dict(zip(keys, alarm.since, strict=True)))
