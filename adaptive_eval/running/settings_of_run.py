"""A machine's settings from a run's configurations: settings by the numbers of the store, stage by stage."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from adaptive_eval.base.seeds import trial_seed
from adaptive_eval.config.prepare import PreparedRun, StoredSetup, make_roster, seed_base, stored_setup
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.types import NO_COST
from adaptive_eval.graders.pool import Grading
from adaptive_eval.machine.alarms import AlarmSettings
from adaptive_eval.machine.events import Setting
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.replay import Stage, replay
from adaptive_eval.machine.resume import stored_stages
from adaptive_eval.notes import were_answers_awaited
from adaptive_eval.notes.event import Event
from adaptive_eval.notes.lives import RunResumed
from adaptive_eval.questions import Question
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.report.changes import effect_of_changes
from adaptive_eval.report.looks import plain_look
from adaptive_eval.report.reader import RunReader
from adaptive_eval.running.beginning import stored_plan
from adaptive_eval.store.read import LogReader
from adaptive_eval.supplies.opening import request_limits


def make_setting(config: RunConfig, questions: Sequence[str], plan: Plan, numbers: Mapping[str, int]) -> Setting:
    """The settings of a configuration with this plan, for answers that are graded at once; `numbers`: of models."""
    models = {numbers[model.name]: model for model in config.models}
    limits = {number: request_limits(model) for number, model in models.items() if model.recorded is None}
    bases = {number: seed_base(config, model) for number, model in models.items()}
    benchmarks = [benchmark_named(question) for question in questions] if config.benchmarks else []
    names = [*dict.fromkeys(benchmarks)]
    return Setting(
        plan,
        tuple(models),
        slots={number: limit.slots for number, limit in limits.items()},
        samples={number: limit.samples for number, limit in limits.items()},
        remembers=frozenset(number for number, limit in limits.items() if limit.remembers),
        own_grades=frozenset(number for number, limit in limits.items() if limit.own_grades),
        benchmarks=[names.index(name) for name in benchmarks],
        questions=questions,
        alarms=AlarmSettings(
            config.stopping.on_alarm,
            {number: model.freedom for number, model in models.items()},
        ),
        seed=lambda model, question, number: trial_seed(bases[model](questions[question]), number),
        describe=partial(
            plain_look, models=[model.name for model in config.models], capped_opening=plan.has_capped_opening
        ),
    )


def setting_of_today(prepared: PreparedRun, numbers: Mapping[str, int], grading: Grading) -> Setting:
    """The settings of a run that is to begin or go on."""
    questions = prepared.questions
    setting = make_setting(prepared.config, [question.id for question in questions], prepared.plan, numbers)
    is_reserved = prepared.plan.budget.bought and grading.lasting
    return replace(
        setting,
        judged=frozenset(number for number, question in enumerate(questions) if grading.asks(question)),
        verdict=grading.lost if is_reserved else NO_COST,
        vote=grading.lost_vote(grading.lost) if is_reserved else NO_COST,
        verdicts_at_once=grading.at_once,
    )


def stages_of_run(reader: RunReader, events: Sequence[Event], config: RunConfig, setting: Setting) -> list[Stage]:
    """The stages of a stored run, the last of them with the `setting` and configuration of today."""
    log, header, setups = reader.log, reader.header(), dict[int, StoredSetup]()
    today = log.newest_configuration()

    def setup_of(number: int) -> StoredSetup:
        if number not in setups:
            setups[number] = stored_setup(replace(header, configuration=log.configurations()[number]))
        return setups[number]

    def config_of(number: int) -> RunConfig:
        return config if number == today else setup_of(number).config

    def setting_of(number: int) -> Setting:
        setup = setup_of(number)
        earlier = make_setting(setup.config, setting.questions, stored_plan(setup, reader, events), log.models())
        return replace(earlier, judged=setting.judged, verdict=setting.verdict, vote=setting.vote)

    return stored_stages(
        log,
        today,
        setting,
        setting_of,
        lambda before, after: effect_of_changes(config_of(before), config_of(after)),
        lambda number: config.plug_ins.items() >= config_of(number).plug_ins.items(),
    )


def awaited_models(events: Sequence[Event], models: Mapping[str, int]) -> list[int]:
    """The numbers of the models of which all that was asked in earlier starts has come."""
    return [number for name, number in models.items() if were_answers_awaited([*events, RunResumed()], name)]


def replay_stored(log: LogReader, config: RunConfig, questions: Sequence[Question]) -> Machine:
    """A machine at the end of a stored log, for those who ask for nothing; `config`: its newest configuration."""
    reader = RunReader(log)
    events = reader.events()
    setup = StoredSetup(config, tuple(questions), {}, make_roster(config, questions))
    keys = [question.id for question in questions]
    setting = make_setting(config, keys, stored_plan(setup, reader, events), log.models())
    stages = stages_of_run(reader, events, config, setting)
    return replay(lambda whole_commits: log.log(in_whole_commits=whole_commits), stages, log.notes(), log.known_answers)
