"""A machine's settings from a run's configurations: settings by the numbers of the store, stage by stage."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from adaptive_eval.base.seeds import trial_seed
from adaptive_eval.config.prepare import PreparedRun, StoredSetup, make_roster, seed_base, stored_setup
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.types import NO_COST
from adaptive_eval.graders.pool import Grading
from adaptive_eval.machine.alarms import AlarmSettings
from adaptive_eval.machine.events import Setting
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.records import LookTaken, SettingsEffect, SettingsEnd
from adaptive_eval.machine.replay import Stage, replay
from adaptive_eval.notes import RunBegun, RunFinished, RunStopped, TrialsImported
from adaptive_eval.notes.event import Event
from adaptive_eval.questions import Question
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.report.changes import effect_of_changes
from adaptive_eval.report.ending import has_dropped_answers
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
            {number: model.sampled for number, model in models.items()},
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
    """The stages of a stored run: configurations under which looks were taken, and then the `setting` and configuration
    of today.

    Configurations that decide alike are one stage. If one cannot be replayed, since a plug-in of it is not at hand,
    the settings after it judge all answers anew.
    """
    log, header, ends = reader.log, reader.header(), reader.log.settings_ends()
    today, configurations = log.newest_configuration(), log.configurations()
    earlier = list[tuple[StoredSetup, SettingsEnd]]()
    for number in sorted(number for number, end in ends.items() if end.has_looked and number < today):
        setup = stored_setup(replace(header, configuration=configurations[number]))
        if not config.plug_ins.items() >= setup.config.plug_ins.items():
            earlier.clear()
            continue
        if earlier and effect_of_changes(earlier[-1][0].config, setup.config) is SettingsEffect.NONE:
            earlier.pop()  # the later one has the same settings, and lasts longer
        earlier.append((setup, ends[number]))
    if earlier and effect_of_changes(earlier[-1][0].config, config) is SettingsEffect.NONE:
        earlier.pop()
    planned: list[tuple[RunConfig, Setting, SettingsEnd | None]] = []
    for setup, end in earlier:
        old = make_setting(setup.config, setting.questions, stored_plan(setup, reader, events), log.models())
        old = replace(old, judged=setting.judged, verdict=setting.verdict, vote=setting.vote)
        planned.append((setup.config, old, end))
    stages, before = list[Stage](), None
    for after, stage_setting, ended in (*planned, (config, setting, None)):
        stands = before is None or effect_of_changes(before, after) is not SettingsEffect.PROMISE
        stages.append(Stage(replace(stage_setting, verdicts_stand=stands), ended))
        before = after
    return stages


def awaited_models(events: Sequence[Event], models: Mapping[str, int], trials: int) -> list[int]:
    """The numbers of the models of which all that was asked in earlier starts has come: each of these had received it
    when it ended, or has stored no trial, so that no slow answer is left out. `trials`: those stored now. No log says
    what was requested, so imported trials beyond the last look do not count, as in the report of the import."""
    if any(isinstance(event, TrialsImported) for event in events):
        return []
    starts = [at for at, event in enumerate(events) if isinstance(event, RunBegun)]
    left_out = set[str]()
    for start, following in pairwise([*starts, len(events)]):
        begun, since = events[start], events[start:following]
        assert isinstance(begun, RunBegun)
        later = events[following] if following < len(events) else None
        if (later.trials if isinstance(later, RunBegun) else trials) == begun.trials and not has_dropped_answers(since):
            continue
        ends = [event for event in since if isinstance(event, RunFinished | RunStopped)]
        waited_for = ends[0].waited_for or () if ends else ()
        left_out.update({*(begun.longest_prompts or models)} - {*waited_for})
    return [number for name, number in models.items() if name not in left_out]


def replay_stored(log: LogReader, config: RunConfig, questions: Sequence[Question]) -> Machine:
    """A machine at the end of a stored log, for those who ask for nothing; `config`: its newest configuration."""
    reader = RunReader(log)
    events = reader.events()
    setup = StoredSetup(config, tuple(questions), {}, make_roster(config, questions))
    keys = [question.id for question in questions]
    setting = make_setting(config, keys, stored_plan(setup, reader, events), log.models())
    stages = stages_of_run(reader, events, config, setting)
    return replay(lambda whole_commits: log.log(in_whole_commits=whole_commits), stages, log.notes(), log.known_answers)


def missing_looks(machine: Machine, reader: RunReader) -> list[LookTaken]:
    """Looks of a replayed run that are not stored: other settings may take a further one of the same answers."""
    looks = reader.look_count()
    return [record for record in machine.derived.collected if isinstance(record, LookTaken) and record.number >= looks]
