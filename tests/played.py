"""A run that is played step by step: real decisions and a real store, answers made up on the spot."""

import json
import time
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
from adaptive_eval.record.build import build_results
from adaptive_eval.record.results_file import write_results
from adaptive_eval.record.snapshot import run_subject, take_snapshot
from adaptive_eval.store import (
    CommitBatch,
    Event,
    ModelSetAside,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    Store,
    TrialRecord,
)
from adaptive_eval.store.looks import plain_look
from adaptive_eval.store.usage import TrialUsage

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
        opened = Store.open(self.directory, self.plan.header)
        self.store = opened.store
        self.controller = Controller(self.plan.plan)
        self.usages = {name: TrialUsage() for name in self.plan.models}
        self._rng = np.random.default_rng(1)
        self._keys = [question.id for question in self.plan.questions]
        looks = self.controller.restore(self._stored())
        begun = RunResumed if opened.resumed else RunStarted
        self.commit([], looks, [begun(sum(usage.trials for usage in self.usages.values()))])

    def step(self, trials: int = 20) -> list[Look]:
        """Answer some trials, commit them, and take the looks that they complete."""
        return self.answer(self.controller.ask(trials))

    def answer(self, asks: Sequence[Ask], gone: Sequence[ModelSetAside] = ()) -> list[Look]:
        """Answer these, set models aside, commit it all together, and take the looks that it completes."""
        records = [self._record(ask.model, ask.question, ask.trial, ask.round) for ask in asks]
        outcomes = [self._count(record) for record in records]
        aside = [SetAside(self.plan.models.index(one.model), one.reason) for one in gone]
        looks = self.controller.tell([*outcomes, *aside])
        self.commit(records, looks, gone)
        if looks:
            self.publish()
        return looks

    def commit(self, records: Sequence[TrialRecord], looks: Sequence[Look] = (), events: Sequence[Event] = ()) -> None:
        """Store these, a second later."""
        self.seconds += 1.0
        stored = [plain_look(look, self.plan.models, capped_opening=False) for look in looks]
        self.store.commit(CommitBatch(records, stored, events, self.seconds))

    def publish(self, stopped: bool = False) -> None:
        """Write results.json."""
        subject = run_subject(self.plan.config, self.plan.questions, self.store.reader.created)
        usages = list(self.usages.values())
        snapshot = take_snapshot(
            subject, self.controller, usages, elapsed=self.seconds, now=time.time(), stopped=stopped
        )
        if snapshot is not None:
            write_results(self.directory, build_results(snapshot))

    def finish(self) -> None:
        """Play to the end, and let go."""
        while self.controller.finished is None:
            self.step(200)
        self.publish()
        self.commit([], [], [RunFinished(self.controller.finished)])
        self.close()

    def stop(self) -> None:
        """End as a user would."""
        self.publish(stopped=True)
        self.commit([], [], [RunStopped()])
        self.close()

    def close(self) -> None:
        """Let go without a word, as a process that is killed does."""
        self.store.close()

    @property
    def store_trials(self) -> int:
        """How many trials have been committed."""
        return sum(usage.trials for usage in self.usages.values())

    def _record(self, model: int, question: int, trial: int, round_: int) -> TrialRecord:
        name, key = self.plan.models[model], self._keys[question]
        category = int(self._rng.random() < self.skills[name])
        text = self.text(name, key, trial)
        answer = Answer(text, "stop", 1000 + trial, REPLICA, 1.5, prompt_tokens=10, completion_tokens=20, attempts=2)
        signals = {"is_correct": bool(category)}
        return TrialRecord(
            name, key, trial, round_, answer, category, signals, str(category), None, Cost(30, 0.01, 0.5)
        )

    def _count(self, record: TrialRecord) -> Outcome:
        outcome = record.outcome()
        self.usages[record.model].add(outcome)
        at = self.plan.models.index(record.model), self._keys.index(record.question)
        assert outcome.category is not None
        return Outcome(*at, record.trial, outcome.category, outcome.cost)

    def _stored(self) -> list[Outcome]:
        found = []
        for one in self.store.reader.outcomes():
            if one.model in self.usages and one.category is not None:
                self.usages[one.model].add(one)
                at = self.plan.models.index(one.model), self._keys.index(one.question)
                found.append(Outcome(*at, one.trial, one.category, one.cost))
        return found
