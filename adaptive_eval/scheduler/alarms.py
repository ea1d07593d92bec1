"""Alarms about the answers of a model, and the events of those that the core raises.

At the first look they are a function of the committed trials of the opening round alone, whatever the order of the
answers and however often the run is killed. Later looks find answers that repeat from some trial on, among the trials
that they have judged.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.sections import StopOnAlarm
from adaptive_eval.core.answer_alarms import AnswerAlarm
from adaptive_eval.questions.types import Question
from adaptive_eval.store import AlarmRaised, Event, Roster, RunReader, StoredOutcome, TrialRecord
from adaptive_eval.store.repeats import SamplingFreedom, find_frozen, find_repeats, repeats_sentence
from adaptive_eval.store.usage import AnswerFault, TrialUsage, fault_sentence

SHOWN_CHARACTERS = 120
GROWTH = 1.1
"""Answers are searched for repeats again when a model has so many times as many trials."""


def example_words(record: TrialRecord, question: Question) -> str:
    """A stored answer, cut to its end, where the result stands, as an example of what an alarm means."""
    text = record.answer.text.strip()
    cut = text if len(text) <= SHOWN_CHARACTERS else f"…{text[-SHOWN_CHARACTERS:]}"
    found = "nothing" if record.extracted is None else repr(record.extracted[:SHOWN_CHARACTERS])
    key = question.answer[:SHOWN_CHARACTERS]
    return f"for example {cut!r} to question {record.question}: found {found}, key {key!r}"


def alarm_event(roster: Roster, alarm: AnswerAlarm) -> AlarmRaised:
    """The event of an alarm that the core has raised."""
    since = None if alarm.since is None else dict(zip(roster.questions, alarm.since, strict=True))
    return AlarmRaised(roster.models[alarm.model], alarm.kind.signal, alarm.reason, since=since)


class Alarms:
    """Judges the opening of a run when its first look is taken."""

    def __init__(
        self,
        models: Sequence[str],
        questions: Sequence[Question],
        opening: NDArray[np.int32],
        drawn: Sequence[SamplingFreedom | None],
        stop_on: StopOnAlarm = "all",
    ) -> None:
        """`opening` (L, M): the trials of the first round; `drawn`: how freely each model samples."""
        self._models, self._questions, self._opening, self._stop_on = models, questions, opening, stop_on
        self._drawn = drawn
        self._usages: Sequence[TrialUsage] = [TrialUsage() for _ in models]
        self._opening_only: dict[int, TrialUsage] = {}
        """Sums over the opening answers of the models that have later ones, too."""
        self._examples: dict[int, str] = {}
        self._judged = False
        self._searched: dict[int, int] = {}
        """Trials of each model among which repeats were searched for last."""
        self._repeating: dict[int, AlarmRaised] = {}
        self.raised: set[tuple[str, str]] = set()
        """Models and faults of the alarms that are on disk."""
        self.stopped: str | None = None
        """Why the alarms end the run; None if it goes on."""

    @classmethod
    def judged(cls) -> "Alarms":
        """Alarms that have been judged, for who only reads a run."""
        alarms = cls((), (), np.zeros((0, 0), np.int32), ())
        alarms._judged = True
        return alarms

    def follow(self, usages: Sequence[TrialUsage]) -> None:
        """Use these running totals of the models, each until its model has answers beyond the opening."""
        self._usages = usages

    def add(self, model: int, question: int, outcome: StoredOutcome) -> None:
        """Add a committed outcome, before it is in its model's totals; outcomes beyond the opening are ignored."""
        if self._judged:
            return
        within = outcome.trial < self._opening.item(model, question)
        apart = self._opening_only.get(model)
        if apart is not None and within:
            apart.answers.add(outcome)
            apart.watch.add(outcome)
        elif apart is None and not within:
            self._opening_only[model] = deepcopy(self._usages[model])

    def see(self, model: int, record: TrialRecord) -> None:
        """Keep an answer as an example if it is the first trial of the first question."""
        if not self._judged and record.trial == 0 and record.question == self._questions[0].id:
            self._examples[model] = example_words(record, self._questions[0])

    def look_up(self, reader: RunReader) -> None:
        """Take the examples from the stored answers."""
        for model, name in enumerate(self._models):
            for record in reader.cell(name, self._questions[0].id):
                self.see(model, record)
                break

    def judge(self, gone: Collection[int]) -> list[Event]:
        """Raise the alarms of the first look that are not on disk yet, leaving out the models in `gone`."""
        if self._judged:
            return []
        self._judged = True
        there = [model for model in range(len(self._models)) if model not in gone]
        raised = list(self._find_alarms(there))
        self._stop_if_so(raised, there)
        return self.not_stored(raised)

    def not_stored(self, events: Iterable[AlarmRaised]) -> list[Event]:
        """Those of these alarms that are not on disk yet."""
        return [event for event in events if (event.model, event.fault) not in self.raised]

    def forget(self, model: str) -> None:
        """Forget the alarms of a model whose answers were discarded."""
        self.raised = {one for one in self.raised if one[0] != model}

    def find_later_repeats(
        self, gone: Collection[int], trials: NDArray[np.integer], *, is_last: bool = False
    ) -> list[Event]:
        """Raise the alarms of answers that repeat from some trial on, among the first `trials` (L, M) of each question,
        leaving out the models in `gone`; `is_last`: no further look comes."""
        there = [model for model in range(len(self._models)) if model not in gone]
        growth = 1.0 if is_last else GROWTH
        new = [model for model in there if int(trials[model].sum()) >= growth * self._searched.get(model, 0)]
        names = [question.id for question in self._questions]
        for model in new:
            self._searched[model] = int(trials[model].sum())
            judged = dict(zip(names, trials[model].tolist(), strict=True))
            repeats = None if self._drawn[model] is None else find_frozen(self._usages[model].watch, judged)
            if repeats is not None:
                text = repeats_sentence(repeats)
                alarm = AlarmRaised(self._models[model], AnswerFault.REPEATED, text, self._examples.get(model))
                self._repeating.setdefault(model, alarm)
        raised = [alarm for model, alarm in self._repeating.items() if model in there]
        self._stop_if_so(raised, there)
        return self.not_stored(raised)

    def _find_alarms(self, there: Sequence[int]) -> Iterator[AlarmRaised]:
        """Yield at most one alarm for each of these models: a fault of its answers, or else repeated answers."""
        counted = [self._opening_only.get(model, self._usages[model]) for model in there]
        again = [find_repeats(one.watch, self._drawn[model]) for model, one in zip(there, counted, strict=True)]
        names = [self._models[model] for model in there]
        for name, model, answers, found in zip(names, there, [one.answers for one in counted], again, strict=True):
            shown = self._examples.get(model)
            if (fault := answers.fault) is not None:
                yield AlarmRaised(name, fault, fault_sentence(fault, answers.number), shown)
            elif found is not None and found.is_certain:
                yield AlarmRaised(name, AnswerFault.REPEATED, repeats_sentence(found), shown)

    def _stop_if_so(self, raised: Sequence[AlarmRaised], there: Sequence[int]) -> None:
        """End the run if the configuration ends it by these alarms about the models `there`."""
        everyone = len(raised) == len(there)
        if raised and self._stop_on != "never" and self.stopped is None and (self._stop_on == "any" or everyone):
            self.stopped = self._stop_reason(raised, everyone=everyone)

    def _stop_reason(self, raised: Sequence[AlarmRaised], everyone: bool) -> str:
        alike: dict[str, list[AlarmRaised]] = {}
        for event in raised:
            alike.setdefault(event.text, []).append(event)
        lines = [f"  {', '.join(one.model for one in group)}: {group[0].description}" for group in alike.values()]
        whom = "every model" if everyone else "a model"
        return "\n".join(
            [
                f"the answers of {whom} cannot be what was asked for, as a look shows",
                *lines,
                "Every answer is stored. After a change of prompt, model or server start over (--fresh). After one of "
                "grader or answer keys `adaptive-eval regrade RUN --config CONFIG` grades them anew, and the run goes "
                "on; if all is as it should be, go on with --set stopping.on_alarm=never",
            ]
        )
