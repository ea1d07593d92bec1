"""A run directory with fake servers, in which the machine is driven again and again."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fakes import QUESTIONS, SKILLS, FakeEndpoint, FakeGrading, describe_look, plan

from adaptive_eval.core import Plan
from adaptive_eval.core.types import Cost, Reason
from adaptive_eval.endpoints.types import Answer, Endpoint, Message, Prompt
from adaptive_eval.machine.events import Setting
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.records import LookTaken, Note
from adaptive_eval.machine.replay import Stage
from adaptive_eval.machine.supply import AskedModel, EndpointClient, EndpointSupply, Supply
from adaptive_eval.questions.types import Question
from adaptive_eval.running.driver import Driver
from adaptive_eval.running.resume import begin
from adaptive_eval.store.header import Json, RunHeader
from adaptive_eval.store.read import LogReader
from adaptive_eval.store.write import RunStore


class StillClock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def elapsed(self) -> float:
        return self.seconds

    def gpu_seconds(self, machine: Machine) -> float:
        return 0.0

    def held(self) -> None:
        return None

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def on_sent(self, model: int) -> None: ...

    def on_quiet(self, model: int) -> None: ...

    def on_note(self, note: Note) -> None: ...


class Remembering:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.looks: list[LookTaken] = []
        self.notes: list[Note] = []

    def on_look(self, look: LookTaken) -> None:
        self.looks.append(look)

    def on_note(self, note: Note) -> None:
        self.notes.append(note)

    def on_charge(self, charge: object) -> None: ...


class NoReporter:
    """Makes no report."""

    def draft(self, machine: Machine, *, is_over: bool) -> None:
        return None


def cost_of(answer: Answer) -> Cost:
    return Cost(answer.prompt_tokens + answer.completion_tokens)


class MachineBed:
    """A run directory with fake servers."""

    def __init__(
        self,
        directory: Path,
        the_plan: Plan | None = None,
        slots: int = 8,
        samples: int = 1,
        questions: Sequence[Question] = QUESTIONS,
    ) -> None:
        given = the_plan or plan()
        self.plan = replace(given, bench=replace(given.bench, together=(samples,) * len(SKILLS)))
        self.directory, self.questions, self.slots, self.samples = directory, questions, slots, samples
        self.endpoints = {name: FakeEndpoint(name, skill, delay=0.002) for name, skill in SKILLS.items()}
        self.grading, self.observer, self.clock = FakeGrading(), Remembering(), StillClock()
        self.patience = 0.0
        self.header = RunHeader("fake", {}, {}, dict.fromkeys(SKILLS, {}), {question.id: {} for question in questions})

    async def start(self, during: Callable[[Driver], object] | None = None) -> Machine:
        """Run until it ends; `during` gets the driver before."""
        machine = await self.start_or_stop(during)
        assert machine is not None
        return machine

    async def start_or_stop(self, during: Callable[[Driver], object] | None = None) -> Machine | None:
        """The same; None if it was stopped before all was replayed."""
        store = RunStore.open(self.directory, self.header)
        with closing(store):
            driver = Driver(
                store,
                self.grading,  # type: ignore[arg-type]
                self.questions,
                self.clock,
                patience=self.patience,
                observer=self.observer,
                reporter=NoReporter(),
            )
            numbers = range(len(SKILLS))
            setting = Setting(
                self.plan,
                tuple(numbers),
                slots=dict.fromkeys(numbers, self.first_slots),
                seed=lambda model, question, number: number,
                describe=describe_look,
                samples=dict.fromkeys(numbers, self.samples),
                verdicts_at_once=self.grading.at_once,
            )
            driver.use(dict.fromkeys(numbers, self.supply(driver)))
            if during is not None:
                during(driver)
            machine, first = await begin(driver, [Stage(setting)])
            try:
                self.reason: Reason | None = machine and await driver.run(machine, first)
            finally:
                await driver.close()
        return machine

    @property
    def first_slots(self) -> int:
        """Requests of a model that may be in flight at the beginning."""
        return self.slots

    def supply(self, driver: Driver) -> Supply:
        models = {
            number: AskedModel(self.client(name, self.endpoints[name]), self.slots, cost_of)
            for number, name in enumerate(SKILLS)
        }
        return EndpointSupply(models, driver.post, driver.fail, is_capped=self.plan.budget.bought)

    def client(self, name: str, endpoint: Endpoint) -> EndpointClient:
        base = 1000 * [*SKILLS].index(name)
        return EndpointClient(
            endpoint,
            lambda question: Prompt((Message("user", self.questions[question].prompt),)),
            lambda question, trial: base + trial,
        )

    def looks(self) -> list[Json]:
        with closing(LogReader.open(self.directory)) as reader:
            return [look.body for look in reader.looks()]

    def outcomes(self) -> dict[object, object]:
        with closing(LogReader.open(self.directory)) as reader:
            return {trial.key: (trial.state, trial.category) for _, trial in reader.trials()}


async def stop_when(driver: Driver, met: Callable[[], bool]) -> None:
    """Stop a run as soon as something has happened in this loop."""
    while not met():  # noqa: ASYNC110
        await asyncio.sleep(0)
    driver.stop()
