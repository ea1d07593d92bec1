"""A run by the machine from a configuration file: what `running` will do once it is the only way."""

import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_eval.base.seeds import trial_seed
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.fingerprint import differences
from adaptive_eval.config.load import load_config
from adaptive_eval.config.planning import trial_cost
from adaptive_eval.config.prepare import (
    PreparedRun,
    prepare,
    run_header,
    seed_bases,
    stored_setup,
    with_questions,
)
from adaptive_eval.config.run import RunConfig
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.core.types import NO_COST, Cost, Look, Reason
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.pool import Grading
from adaptive_eval.notes import Event, parse_event
from adaptive_eval.report.changes import Effect, effect_of_changes
from adaptive_eval.report.looks import plain_look
from adaptive_eval.report.make import Reporter
from adaptive_eval.run.driver import Driver
from adaptive_eval.run.events import Setting
from adaptive_eval.run.machine import Machine
from adaptive_eval.run.records import Json, LookTaken, Note
from adaptive_eval.run.resume import SettingsEffect, begin, stored_stages
from adaptive_eval.run.supply import Supply
from adaptive_eval.run.trial import Trial
from adaptive_eval.running.answer_keys import open_run_graders
from adaptive_eval.running.beginning import load_starting_point
from adaptive_eval.storage.header import RunHeader
from adaptive_eval.storage.header import RunHeader as OldHeader
from adaptive_eval.storage.read import LogReader
from adaptive_eval.storage.write import RunStore
from adaptive_eval.supplies.opening import SuppliedModel, SupplyContext, open_supplies, request_limits

CHANGES = {Effect.NONE: SettingsEffect.NONE, Effect.NEW_PROMISE: SettingsEffect.PROMISE}
CHANGES |= {effect: SettingsEffect.DECISIONS for effect in Effect if effect not in CHANGES}


class Clock:
    """The time since a start, which begins where the one before has ended."""

    def __init__(self, before: float) -> None:
        self._start = time.monotonic() - before

    def now(self) -> float:
        return time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def gpu_seconds(self, machine: Machine) -> float:
        return 0.0

    def held(self) -> None:
        return None

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def on_sent(self, model: int) -> None: ...

    def on_quiet(self, model: int) -> None: ...

    def on_note(self, note: Note) -> None: ...


class Seen:
    """Looks and notes as they are shown."""

    def __init__(self) -> None:
        self.looks: list[int] = []
        self.notes: Counter[str] = Counter()

    def on_look(self, look: LookTaken) -> None:
        self.looks.append(look.number)

    def on_note(self, note: Note) -> None:
        self.notes[note.kind] += 1

    def on_charge(self, charge: object) -> None: ...


def plain(prepared: PreparedRun, look: Look) -> Json:
    return dict(plain_look(look, prepared.models, capped_opening=prepared.plan.has_capped_opening).body)


def header_of(prepared: PreparedRun) -> RunHeader:
    header = run_header(prepared.config, prepared.questions)
    return RunHeader(header.name, header.configuration, header.meaning, header.models, header.questions)


def setting_of(prepared: PreparedRun, reader: LogReader, grading: Grading) -> Setting:
    """The settings of a run, by the numbers of its store."""
    numbers = reader.models()
    models = {numbers[model.name]: model for model in prepared.config.models}
    bases = {number: seed_bases(prepared, model) for number, model in models.items()}
    each = {number: request_limits(model) for number, model in models.items()}
    asks = [number for number, question in enumerate(prepared.questions) if grading.asks(question)]
    is_capped = prepared.plan.budget.bought and grading.lasting
    return Setting(
        prepared.plan,
        tuple(models),
        slots={number: limits.slots for number, limits in each.items()},
        samples={number: limits.samples for number, limits in each.items()},
        remembers=frozenset(number for number, limits in each.items() if limits.remembers),
        own_grades=frozenset(number for number, limits in each.items() if limits.own_grades),
        judged=frozenset(asks),
        verdict=grading.lost if is_capped else NO_COST,
        vote=grading.lost_vote(grading.lost) if is_capped else NO_COST,
        verdicts_at_once=grading.at_once,
        seed=lambda model, question, trial: trial_seed(bases[model](question), trial),
        describe=partial(plain, prepared),
    )


def open_all(
    prepared: PreparedRun,
    setting: Setting,
    grading: Grading,
    driver: Driver,
    stack: AsyncExitStack,
    directory: Path,
    notes: Iterable[Note],
) -> dict[int, Supply]:
    config = prepared.config
    is_capped = prepared.plan.budget.bought
    names = {number: model.name for number, model in zip(setting.roster, config.models, strict=True)}

    def reserve(answer: Answer, question: int, number: int) -> Cost:
        asked = prepared.questions[question]
        return grading.lost_with(answer.text, asked.for_trial(number)) if is_capped and grading.lasting else NO_COST

    models = {
        number: SuppliedModel(
            number,
            config.models[at],
            prepared.prompts[at].__getitem__,
            lambda question, trial, number=number: setting.seed(number, question, trial),  # type: ignore[misc]
            trial_cost(config.models[at]),
            reserve,
        )
        for at, number in enumerate(setting.roster)
    }
    keys = read_environment(config.folder)
    opener = partial(open_endpoint, keys=keys, shared_time=SharedTime(), folder=config.folder)
    context = SupplyContext(
        prepared,
        config,
        directory,
        0.0,
        keys,
        run_redactor(config),
        [],
        stack,
        lambda model: opener(model, model.sampling, model.concurrency),
        driver.post,
        driver.fail,
        is_capped,
        [event_of(note, names) for note in notes if note.kind in STORED_EVENTS],
    )
    return open_supplies(context, models)


STORED_EVENTS = {"batch_planned", "batch_taken", "batch_cancelled", "batch_ended"}


def event_of(note: Note, names: Mapping[int, str]) -> Event:
    about = {} if note.model is None else {"model": names[note.model]}
    return parse_event(note.kind, {**about, **note.body})


def prepared_for(config: Path, directory: Path) -> PreparedRun:
    """What runs, with outcomes of earlier runs that it begins with."""
    return load_starting_point(prepare(load_config(config, ())), directory.with_name("nothing there")).prepared


def _fields(header: RunHeader) -> dict[str, Any]:
    return {name: getattr(header, name) for name in ("name", "configuration", "meaning", "models", "questions")}


async def start(config: Path, directory: Path) -> tuple[Reason | None, Seen]:
    """One start of a run."""
    prepared = prepared_for(config, directory)
    redactor, seen, header = run_redactor(prepared.config), Seen(), header_of(prepared)
    store, is_resumed = RunStore.open(directory, header, redactor)
    with closing(store):
        reader = store.reader
        if is_resumed and (changes := [*differences(reader.header().configuration, header.configuration)]):
            store.change_settings(header, changes)
        async with AsyncExitStack() as stack, open_run_graders(prepared) as grading:
            setting = setting_of(prepared, reader, grading)
            patience = max(model.sampling.timeout for model in prepared.config.models)
            clock = Clock(reader.elapsed)
            reporter = Reporter(prepared.config, prepared.questions, reader.created)
            driver = Driver(
                store, grading, prepared.questions, clock, patience=patience, observer=seen, reporter=reporter
            )
            notes = [note for _, note in reader.notes()]
            driver.use(open_all(prepared, setting, grading, driver, stack, directory, notes))

            def config_of(number: int) -> RunConfig:
                stored = {**_fields(header), "configuration": reader.configurations()[number]}
                return stored_setup(OldHeader(**stored)).config

            def earlier(number: int) -> Setting:
                return setting_of(with_questions(config_of(number), prepared.questions), reader, grading)

            def change_between(one: int, other: int) -> SettingsEffect:
                return CHANGES[effect_of_changes(config_of(one), config_of(other))]

            today = reader.newest_configuration()
            stages = stored_stages(reader, today, setting, earlier, change_between)

            def reserve_of(trial: Trial) -> Cost:
                assert trial.answer is not None
                question = prepared.questions[trial.question].for_trial(trial.number)
                return grading.lost_with(trial.answer.text, question) if grading.lasting else NO_COST

            machine, first = await begin(driver, store, reader, stages, reserve_of)
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, driver.stop)
            running = asyncio.create_task(driver.run(machine, first))
            try:
                return await running, seen
            finally:
                await driver.close()


if __name__ == "__main__":
    asyncio.run(start(Path(sys.argv[1]), Path(sys.argv[2])))
