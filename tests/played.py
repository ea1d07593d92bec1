"""A run that is played step by step: real decisions and a real store, answers made up on the spot."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import yaml

from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import PreparedRun, prepare
from adaptive_eval.core import Controller, Outcome
from adaptive_eval.core.types import Ask, Cost, Look, SetAside
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.records import LookTaken, Record
from adaptive_eval.machine.trial import DONE, GradeDetails, Trial
from adaptive_eval.machine.usage import TrialUsage
from adaptive_eval.notes import Event, ModelSetAside, RunFinished, RunResumed, RunStarted, RunStopped
from adaptive_eval.report.looks import plain_look
from adaptive_eval.report.make import Draft, Reporter
from adaptive_eval.report.snapshot import run_subject, take_state
from adaptive_eval.store.write import RunStore

MODELS = {"ada": 0.9, "bob": 0.5, "cyd": 0.45}
REPLICA = "http://127.0.0.1:9/v1"


def ordinary(model: str, question: str, trial: int) -> str:
    """What a model answers by default."""
    return f"{model} on {question}, for the {trial}th time"


def prepared(
    folder: Path,
    models: Sequence[str] = tuple(MODELS),
    questions: int = 6,
    asked: str = "ask",
    server: Mapping[str, object] = MappingProxyType({"base_url": REPLICA}),
    **changes: object,
) -> PreparedRun:
    """A configuration of these models in `folder`, each with such a `server`; all questions begin as `asked`."""
    rows = [{"id": f"q{number}", "prompt": f"{asked} {number}", "answer": str(number)} for number in range(questions)]
    (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    settings = {
        "name": "played",
        "questions": "questions.jsonl",
        "models": [{"name": name, **server} for name in models],
        "sampling": {"temperature": 0.6, "max_tokens": 100},
        "grader": "numeric",
        "trials": {"min": 3, "max": 30},
    } | changes
    if isinstance(trials := settings["trials"], dict):
        settings["trials"] = {"optimize": "cost", **trials}
    path = folder / "played.yaml"
    path.write_text(yaml.safe_dump(settings))
    return prepare(load_config(path))


@dataclass
class Played:
    """One start of a run in `directory`; holds it until `close`."""

    directory: Path
    plan: PreparedRun
    skills: dict[str, float] = field(default_factory=lambda: MODELS)
    text: Callable[[str, str, int], str] = ordinary
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.store = RunStore.open(self.directory, self.plan.header)
        if self.store.is_resumed and self.store.reader.configurations()[-1] != self.plan.header.configuration:
            self.store.change_settings(self.plan.header, [])
        self.controller = Controller(self.plan.plan)
        numbers = self.store.reader.models()
        self.numbers = [numbers[name] for name in self.plan.models]
        self.usages = {number: TrialUsage() for number in self.numbers}
        config, questions, created = self.plan.config, self.plan.questions, self.store.reader.created
        self._reporter = Reporter(config, questions, created)
        self._rng = np.random.default_rng(1)
        self._keys = [question.id for question in self.plan.questions]
        looks = [*self.controller.take(self._stored()), *self.controller.tell(())]
        begun = RunResumed if self.store.is_resumed else RunStarted
        self.commit([], looks, [begun(self.store_trials)])

    def step(self, trials: int = 20) -> list[Look]:
        """Answer some trials, commit them, and take the looks that they complete."""
        return self.answer(self.controller.ask(trials))

    def answer(self, asked: Sequence[Ask], set_aside: Sequence[ModelSetAside] = ()) -> list[Look]:
        """Answer these, set models aside, commit it all together, and take the looks that it completes."""
        trials = [self._trial(ask) for ask in asked]
        outcomes = [self._count(trial) for trial in trials]
        aside = [SetAside(self.plan.models.index(event.model), event.reason) for event in set_aside]
        looks = self.controller.tell([*outcomes, *aside])
        self.commit(trials, looks, set_aside)
        return looks

    def commit(self, trials: Sequence[Trial], looks: Sequence[Look] = (), events: Sequence[Event] = ()) -> None:
        """Store these, a second later, with a report of the looks, or of the end."""
        self.seconds += 1.0
        notes = [LookTaken(look.index, plain_look(look, self.plan.models, capped_opening=False)) for look in looks]
        numbers = self.store.reader.models()
        records: list[Record] = [*trials, *notes, *(note_of(event, numbers) for event in events)]
        rows = [*enumerate(records, self.store.last_seq + 1)]
        is_over = any(isinstance(event, RunFinished | RunStopped) for event in events)
        draft = self._draft(is_over=is_over) if looks or is_over else None
        self.store.commit(rows, elapsed=self.seconds, report=draft)
        if draft is not None:
            draft.publish(self.store)

    def publish(self) -> None:
        """Store a report of what there is now."""
        if (draft := self._draft(is_over=False)) is not None:
            self.store.commit([], elapsed=self.seconds, report=draft)
            draft.publish(self.store)

    def _draft(self, *, is_over: bool) -> Draft | None:
        subject = run_subject(self.plan.config, self.plan.questions, self.store.reader.created)
        state = take_state(subject, self.controller, subject.find_repeats([*self.usages.values()]))
        if state is None:
            return None
        usages = [usage.copy() for usage in self.usages.values()]
        return Draft(self._reporter, state, usages, state.looks[-1].index, [*self.usages], is_over)

    def finish(self) -> None:
        """Play to the end, and let go."""
        while self.controller.finished is None:
            self.step(200)
        self.commit([], [], [RunFinished(self.controller.finished)])
        self.close()

    def stop(self) -> None:
        """End as a user would."""
        self.commit([], [], [RunStopped()])
        self.close()

    def close(self) -> None:
        """Let go without a word, as a process that is killed does."""
        self.store.close()

    @property
    def store_trials(self) -> int:
        """How many trials have been committed."""
        return sum(usage.trials for usage in self.usages.values())

    def _trial(self, ask: Ask) -> Trial:
        name, key = self.plan.models[ask.model], self._keys[ask.question]
        category = int(self._rng.random() < self.skills[name])
        text, seed = self.text(name, key, ask.trial), 1000 + ask.trial
        answer = Answer(text, "stop", seed, REPLICA, 1.5, prompt_tokens=10, completion_tokens=20, attempts=2)
        grade = GradeDetails({"is_correct": bool(category)}, str(category))
        return Trial(
            *(self.numbers[ask.model], ask.question, ask.trial, ask.round),
            state=DONE,
            cost=Cost(30, 0.01, 0.5),
            category=category,
            seconds=1.5,
            answer=answer,
            grade=grade,
        )

    def _count(self, trial: Trial) -> Outcome:
        self.usages[trial.model].add(trial, range(len(self._keys)))
        assert trial.category is not None
        return Outcome(self.numbers.index(trial.model), trial.question, trial.number, trial.category, trial.cost)

    def _stored(self) -> list[Outcome]:
        stored = [trial for _, trial in self.store.reader.trials() if trial.category is not None]
        return [self._count(trial) for trial in stored if trial.model in self.usages]
