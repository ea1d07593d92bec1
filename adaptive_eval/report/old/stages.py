"""The stages of a stored run: the settings under which it took looks, and what each of them left to the next.

A stage is played again on the stored outcomes, with its own settings and models, up to its last look. Nothing is loaded
that only a stored configuration names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from adaptive_eval.config.planning import RunFacts, make_plan
from adaptive_eval.config.prepare import StoredSetup, stored_setup
from adaptive_eval.core import Controller, Outcome, Plan, SetAside, StageBefore
from adaptive_eval.report.changes import Effect, effect_of_changes
from adaptive_eval.report.old.earlier import stored_outcomes, stored_prior
from adaptive_eval.report.old.history import (
    first_cells,
    imported_cells,
    known_before,
    require_outcomes_taken,
    stored_worst_costs,
)
from adaptive_eval.report.old.other_costs import spent_before, spent_on_removed_models
from adaptive_eval.scheduler.asked_again import trials_to_ask_again
from adaptive_eval.scheduler.losses import loss_of, with_losses_in_place
from adaptive_eval.store import (
    AnswersLost,
    Event,
    ModelSetAside,
    Roster,
    RunReader,
    StoredSettings,
    TrialsRegraded,
    events_of_kind,
    events_since_start,
)


class Stage:
    """A configuration under which a run took looks, or several that decide alike."""

    def __init__(self, setup: StoredSetup, settings: StoredSettings) -> None:
        self.setup = setup
        self.look_times = dict(settings.look_times)
        """When each look was taken, by its number."""
        self.until = settings.until
        """When the settings were changed."""

    @property
    def looks(self) -> int:
        """Looks of the run by the end of this stage."""
        return max(self.look_times) + 1

    def extend(self, settings: StoredSettings) -> None:
        """Add looks under settings that decide alike."""
        self.look_times |= settings.look_times
        self.until = settings.until


def earlier_stages(
    reader: RunReader, events: Sequence[Event], now: StoredSetup, *, as_stored: bool = False
) -> list[Stage]:
    """The stages before that of the settings of today, which are the newest stored ones if `as_stored`.

    Grades that were changed begin a run anew: its first look takes all trials that are there.
    """
    regraded = max((one.at for one in events_of_kind(events, TrialsRegraded) if one.opening is not None), default=0.0)
    stages: list[Stage] = []
    header = None
    for one in reader.settings()[: -1 if as_stored else None]:
        looks = {number: at for number, at in one.look_times.items() if at > regraded}
        if not looks:
            continue
        header = reader.header() if header is None else header
        setup, counted = stored_setup(replace(header, configuration=one.configuration)), one._replace(look_times=looks)
        if not now.config.plug_ins.items() >= setup.config.plug_ins.items():  # today's settings judge all answers anew
            stages.clear()
        elif stages and effect_of_changes(stages[-1].setup.config, setup.config) is Effect.NONE:
            stages[-1].extend(counted)
        else:
            stages.append(Stage(setup, counted))
    if stages and effect_of_changes(stages[-1].setup.config, now.config) is Effect.NONE:
        stages.pop()
    return stages


def stored_plan(setup: StoredSetup, reader: RunReader, events: Sequence[Event]) -> Plan:
    """The plan behind a stored run's newest looks, for readers: it prepares no run.

    Raises `ConfigError` if the stored trials exceed the configured maximum.
    """
    stages = earlier_stages(reader, events, setup, as_stored=True)
    return _plan_of(setup, reader, events, play_stages(stages, reader, events, setup))


def play_stages(
    stages: Sequence[Stage], reader: RunReader, events: Sequence[Event], now: StoredSetup, *, starting: bool = False
) -> StageBefore | None:
    """Play stages in order; returns the last of them, as what today's settings go on from.

    `starting`: the run is about to go on, and forgets what it asks again (`scheduler.repair`).
    """
    before: StageBefore | None = None
    again = trials_to_ask_again(reader) if starting and stages else {}
    forgotten = {(model, *key) for model, keys in again.items() for key in keys}
    followers = [*(stage.setup for stage in stages[1:]), now][: len(stages)]
    for number, (stage, following) in enumerate(zip(stages, followers, strict=True)):
        later = {name for setup in followers[number:] for name in setup.roster.models}
        outside = spent_on_removed_models(reader, later.union(stage.setup.roster.models), events)
        plan = _plan_of(stage.setup, reader, events, before)
        controller = Controller(plan, outside_plan=spent_before(outside), followed=True, most_looks=0)
        had = set() if before is None else set(stages[number - 1].setup.roster.models)
        joined = set(stage.setup.roster.models) - had
        controller.keep(_outcomes(reader, stage.setup.roster, joined, forgotten))
        _play(controller, stage, events)
        # caps may leave no room for a first look once answers were lost: then nothing stands that could be gone on from
        before = _stage_before(controller, stage.setup, following) if controller.taker.taken else None
    return before


def _stage_before(controller: Controller, setup: StoredSetup, following: StoredSetup) -> StageBefore:
    were, stands = setup.roster.models, effect_of_changes(setup.config, following.config) is not Effect.NEW_PROMISE
    models = (were.position(name) if name in were else None for name in following.roster.models)
    return StageBefore(controller, tuple(models), stands)


def _plan_of(setup: StoredSetup, reader: RunReader, events: Sequence[Event], before: StageBefore | None) -> Plan:
    config, roster = setup.config, setup.roster
    first, imported = first_cells(config, roster, reader, events), imported_cells(roster, reader, events)
    recorded = stored_outcomes(config, events)
    require_outcomes_taken(config, recorded)
    known = known_before(config, roster, imported, stored_prior(config.prior, events), recorded)
    facts = RunFacts(first, before, reader.capped_opening())
    return make_plan(config, setup.questions, stored_worst_costs(setup, events), facts, known)


def _play(controller: Controller, stage: Stage, events: Sequence[Event]) -> None:
    """Play one stage on the outcomes that were kept."""
    models, during = stage.setup.roster.models, [event for event in events if event.at <= stage.until]
    latest = events_since_start(during)
    for number, event in enumerate(with_losses_in_place(during, stage.look_times)):
        match event:
            case AnswersLost(model=name) if name in models and controller.plan.budget.bought:
                controller.lose([loss_of(event, models.position(name))], stage.looks)
            # what earlier starts had set aside came back
            case ModelSetAside(model=name) if name in models and number >= len(during) - len(latest):
                controller.play(sum(at <= event.at for at in stage.look_times.values()) + min(stage.look_times))
                controller.tell([SetAside(models.position(name), event.reason, event.cause)])
    controller.play(stage.looks)


def _outcomes(
    reader: RunReader, roster: Roster, models: set[str], forgotten: set[tuple[str, str, int]]
) -> Iterator[Outcome]:
    """All outcomes of these models that the core may know."""
    for one in reader.outcomes() if models else ():
        known = one.model in models and not one.awaits_verdict
        if known and (one.model, one.question, one.trial) not in forgotten:
            yield one.to_outcome(*roster.cell(one.model, one.question))
