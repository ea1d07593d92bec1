"""Makes a forecast: draws worlds, simulates the run in each, and summarises the simulated runs."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError, RunChanged, StoreError
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.config.planning import GUESSED_START_SECONDS, RunFacts
from adaptive_eval.config.prepare import PreparedRun, stored_setup
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Bench, Budget, Plan
from adaptive_eval.core.stages import StageBefore
from adaptive_eval.machine.records import SettingsEffect
from adaptive_eval.report.changes import effect_of_changes
from adaptive_eval.report.dry_run import matching_dry_run
from adaptive_eval.report.lines import several
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.snapshot import prior_and_recorded_counts
from adaptive_eval.running.beginning import load_starting_point
from adaptive_eval.running.settings_of_run import replay_stored
from adaptive_eval.store.locate import fresh_directory, newest_directory
from adaptive_eval.study.fixed import fixed_with_as_many
from adaptive_eval.study.grading import ExpectedGrade, expected_grade
from adaptive_eval.study.pilot import (
    AnswerUsage,
    Pilot,
    batch_seconds,
    cost_table,
    guess,
    merge_usage,
    read_pilot,
    request_slots,
)
from adaptive_eval.study.scenario import Scenario, ServiceCosts
from adaptive_eval.study.simulated import OnForecastProgress, simulate_all
from adaptive_eval.study.summary import summarise
from adaptive_eval.study.types import Forecast
from adaptive_eval.study.worlds import WorldPrior, posterior_chances, prior_chances
from scorio.moments import FloatArray, IntArray

GUESSED_WAKE_SECONDS = 5.0
"""The same if the next model sleeps at that place."""

NEAR_COPIES = 0.12
"""Trials of a gate between a model and its copy with 8-bit weights, relative to seeds of their own
(benchmarks/coupling.md)."""


def make_forecast(
    prepared: PreparedRun,
    watch: OnForecastProgress,
    directory: Path | None = None,
    max_worlds: int = 100,
    seed: int = 0,
) -> Forecast:
    """Forecast how a run will go in at most so many worlds; raises `StoreError` if the pilot in `directory` cannot be
    read. Without one the run itself is the pilot, if it has graded answers and can go on."""
    bench = prepared.plan.bench
    own_directory = newest_directory(prepared.config.store, prepared.config.name)
    if directory is None and _can_continue(own_directory, prepared):
        directory = own_directory
    is_continued = directory is not None and directory.resolve() == own_directory.resolve()
    fresh = fresh_directory(prepared.config.store, prepared.config.name)
    started_in = directory if directory is not None and is_continued else fresh
    prepared = load_starting_point(prepared, started_in).prepared
    if is_continued and (prepared.plan.coupled or _has_other_looks(started_in, prepared.config)):
        prepared = replace(prepared, plan=replace(prepared.plan, before=_stage_so_far(started_in, prepared)))
    pilot = None if directory is None else read_pilot(directory, prepared)
    stored = _dry_run(own_directory, prepared) if pilot is None else pilot
    continued = pilot if is_continued else None
    usage, guesses = _usage(prepared, stored)
    if pilot is None and stored is not None:
        guesses = [f"tokens and times are those of {int(stored.counts.sum()):,} answers of the dry run", *guesses]
    seen, source = None if stored is None else stored.grading, "the dry run" if pilot is None else "the pilot"
    grade = expected_grade(prepared, usage, seen, source)
    measured = None if pilot is None else pilot.start_seconds
    scenario = _make_scenario(prepared, usage, continued, seed, grade, measured or GUESSED_START_SECONDS)
    watch(0.0, "drawing true scores")
    worlds = list(_worlds(prepared, pilot, max_worlds, seed))
    budget, left_out = _budget_to_simulate(prepared.plan.budget, usage)
    simulations = simulate_all(scenario, worlds, budget, watch)
    basis = (
        *_basis(pilot, is_continued, bench),
        *guesses,
        *grade.remarks,
        *_server_starts(prepared, scenario, measured=measured is not None),
        *(_asked_ahead(scenario, measured=pilot is not None) if prepared.plan.pace.dedicated_servers else ()),
        *left_out,
    )
    forecast = summarise(prepared, scenario, pilot, worlds, simulations, basis, grade.cost)
    configured = scenario.plan(simulations.configured)
    runs, confidence = simulations.runs[simulations.configured], prepared.config.stopping.confidence
    return replace(
        forecast,
        basis=(*forecast.basis, *_same_seeds(prepared.plan, forecast.need.costs.trials.median)),
        why_optimized=prepared.why_optimized,
        as_many=fixed_with_as_many(configured, worlds, runs, scenario.served, scenario.seed, confidence),
    )


def _can_continue(directory: Path, prepared: PreparedRun) -> bool:
    """Whether the run in `directory` has graded answers and can go on."""
    with suppress(ConfigError, RunChanged, StoreError):
        read_pilot(directory, load_starting_point(prepared, directory).prepared)
        return True
    return False


def _has_other_looks(directory: Path, config: RunConfig) -> bool:
    """Whether looks that the run has taken may be of another horizon, or of another promise."""
    with RunReader.intact(directory) as reader:
        header, ends, configurations = reader.header(), reader.log.settings_ends(), reader.log.configurations()
    looked = [configurations[-1], *(configurations[number] for number, end in ends.items() if end.has_looked)]
    earlier = [stored_setup(replace(header, configuration=configuration)).config for configuration in looked]
    return any(
        then.trials.max != config.trials.max or effect_of_changes(then, config) is SettingsEffect.PROMISE
        for then in earlier
    )


def _stage_so_far(directory: Path, prepared: PreparedRun) -> StageBefore | None:
    """The run as it stands, for its verdicts, which simulated runs would forget: they do not compare trial by trial,
    and all their looks are taken under today's settings. None before its first look."""
    with RunReader.intact(directory) as reader:
        stored = stored_setup(reader.header())
        core, numbers = replay_stored(reader.log, stored.config, stored.questions).core, reader.log.models()
        controller = core.controller
    if not controller.looks:
        return None
    controller.forget_arrivals()  # they are among the recorded outcomes
    stands = effect_of_changes(stored.config, prepared.config) is not SettingsEffect.PROMISE
    models, *earlier = core.numbers_by_stage([numbers.get(name, -1) for name in prepared.models])
    return StageBefore(controller, models, stands, earlier=earlier)


def _dry_run(directory: Path, prepared: PreparedRun) -> Pilot | None:
    """The run's dry run with the same settings, for its tokens and times; None if no answer has a grade."""
    with suppress(ConfigError, RunChanged):
        folder = matching_dry_run(directory, prepared.header)
        return None if folder is None else read_pilot(folder, prepared)
    return None


def _make_scenario(
    prepared: PreparedRun,
    usage: AnswerUsage,
    continued: Pilot | None,
    seed: int,
    grade: ExpectedGrade,
    start_seconds: float,
) -> Scenario:
    models = prepared.config.models
    launches = prepared.config.launched.values()
    return Scenario(
        bench=prepared.plan.bench,
        decisions=prepared.config,
        names=prepared.models,
        served=ServiceCosts(
            usage=usage,
            costs=cost_table(models, usage, grade.cost),
            slots=[request_slots(model, prepared.plan.bench.questions * prepared.plan.trials.max) for model in models],
            recorded=None if continued is None else continued.outcomes,
            in_turn=[group for group in prepared.config.serving_groups if group.in_turn],
            swap_seconds=start_seconds if usage.knows_seconds else 0.0,
            wake_seconds=GUESSED_WAKE_SECONDS
            if usage.knows_seconds and all(launch.sleep for launch in launches)
            else None,
            launched={number: models[number].gpus or 0.0 for number in prepared.config.launched},
            grade_gpu_seconds=grade.cost.gpu_seconds,
        ),
        seed=seed,
        elapsed=0.0 if continued is None else continued.elapsed,
        held_before=0.0 if continued is None else continued.held_gpu_seconds,
        spent_beside={} if continued is None else continued.spent_beside,
        facts=RunFacts(
            first=_stored_if_models_joined(prepared, continued),
            before=prepared.plan.before,
            capped_opening=prepared.plan.capped_opening,
            batched=prepared.config.batched,
        ),
    )


def _stored_if_models_joined(prepared: PreparedRun, continued: Pilot | None) -> IntArray | None:
    """(L, M): the continued run's trials if it has none of some model, since the first look at such a model has all
    trials of the others; else the trials that the plan begins with."""
    plan = prepared.plan
    if continued is None or plan.drawn:
        return plan.first
    trials: IntArray = (continued.outcomes >= 0).sum(axis=2) * plan.bench.asked[:, None]
    with_opening = np.maximum(trials, plan.pace.first_round(plan.trials.min, plan.trials.max)).mean(axis=1)
    have_joined = not trials[plan.bench.asked].any(axis=1).all()
    return trials if have_joined and with_opening.max() <= plan.trials.max else plan.first


def _worlds(prepared: PreparedRun, pilot: Pilot | None, draws: int, seed: int) -> Iterator[FloatArray]:
    bench, rng = prepared.plan.bench, np.random.default_rng(seed)
    _, counts = prior_and_recorded_counts(bench)
    if pilot is not None:
        counts = counts + pilot.counts * bench.asked[:, None, None]
    if counts.any():
        return posterior_chances(counts, bench.weights, draws, rng)
    return prior_chances(WorldPrior(), bench.models, bench.questions, bench.weights, draws, rng)


def _basis(pilot: Pilot | None, continued: bool, bench: Bench) -> Iterator[str]:
    if pilot is None:
        if bench.recorded:
            recorded = several(len(bench.recorded), "recorded model")
            yield f"no pilot: true scores are drawn from the posterior of {recorded}"
        else:
            yield "no pilot: true scores are drawn from a wide prior"
    else:
        source = "the run so far" if continued else f"the pilot {pilot.header.name}"
        per_question = pilot.counts[bench.asked].sum(axis=-1)
        trials = f"{int(per_question.sum()):,} trials, {per_question.min()} to {per_question.max()} per question"
        yield f"true scores are drawn from the posterior of {source}: {trials}"
        yield from pilot.remarks


def _usage(prepared: PreparedRun, pilot: Pilot | None) -> tuple[AnswerUsage, list[str]]:
    """Usage of trials, and sentences on which parts are guesses."""
    models = prepared.config.models
    guessed = guess(models, prepared.prompts, prepared.plan.bench.weights)
    no_model = np.zeros(len(models), dtype=bool)
    usage_and_sources = (guessed, no_model, no_model) if pilot is None else merge_usage(pilot.measured, guessed)
    seconds, batches = batch_seconds(models, {} if pilot is None else pilot.batches)
    batched, usage = ~np.isnan(seconds), usage_and_sources[0]
    times = np.where(batched[:, None], seconds[:, None], usage.seconds)  # an answer comes with its batch
    usage = replace(usage, seconds=times, log_spread=np.where(batched, 0.0, usage.log_spread))
    measured, *sources = usage_and_sources
    return usage, [*_guesses(measured, *(source[prepared.plan.bench.asked] for source in sources)), *batches]


def _guesses(usage: AnswerUsage, tokens: NDArray[np.bool_], seconds: NDArray[np.bool_]) -> Iterator[str]:
    if not usage.knows_tokens:
        yield "tokens are unknown: give a pilot, or sampling.max_tokens for a guess"
    elif not tokens.any():
        yield (
            "guessed tokens of an answer: a quarter of sampling.max_tokens, twice as many if wrong, at 40 tokens per "
            "second"
        )
    elif not seconds.any():
        yield "no answer has a time: guessed are 40 tokens per second"
    if tokens.any() and not tokens.all():
        yield f"tokens of {np.sum(~tokens)} of {len(tokens)} models are those of the others"
    if seconds.any() and not seconds.all():
        yield f"times of {np.sum(~seconds)} of {len(seconds)} models are those of the others"


def _server_starts(prepared: PreparedRun, scenario: Scenario, *, measured: bool) -> Iterator[str]:
    served = scenario.served
    if served.launched and served.usage.knows_seconds:
        origin = ", as in the pilot" if measured else " (a guess)"
        woken = "" if served.wake_seconds is None else f", and {plain_number(served.wake_seconds)} s to wake (a guess)"
        yield f"a server that the run starts takes {plain_number(served.swap_seconds, 3)} s{origin}{woken}"
    if any(len(group.places) > 1 and not group.in_turn for group in prepared.config.serving_groups):
        yield "a pool with a place for each model is simulated with one server per model: the run may end sooner"


def _asked_ahead(scenario: Scenario, *, measured: bool) -> Iterator[str]:
    """The assumption for counting answers that the pace `time` requests ahead."""
    served = scenario.served
    slots, sigma = (
        plain_number(values.min())
        if values.min() == values.max()
        else f"{plain_number(values.min())} to {plain_number(values.max())}"
        for values in (np.array(served.slots), served.usage.log_spread.round(2))
    )
    lengths = (
        f"log-normal (sigma {sigma})" if measured else f"a guess: log-normal (sigma {sigma}), twice as long if wrong"
    )
    alike = "" if served.usage.knows_seconds else ", equally long for each model"
    yield (
        f"`optimize: time` is simulated with {slots} requests in flight per model; times of answers are "
        f"{lengths}{alike}"
    )


def _budget_to_simulate(budget: Budget, usage: AnswerUsage) -> tuple[Budget, list[str]]:
    """The budget without caps on unknown quantities."""
    timed = {"wall_time": budget.wall_seconds, "gpu_hours": budget.gpu_seconds}
    if usage.knows_seconds:
        return budget, []
    simulated = replace(budget, wall_seconds=None, gpu_seconds=None, held_gpu_seconds=None)
    return simulated, [f"budget.{key} is ignored: the time of answers is unknown" for key, cap in timed.items() if cap]


def _same_seeds(plan: Plan, trials: float) -> Iterator[str]:
    """A sentence on models that share their seeds; runs are simulated as if sharing had no effect.

    A server's use of a seed is not known in advance. So the simulated runs are the most that such a run takes (`trials`
    of them), and the least is told for comparison: what models that hardly differ took.
    """
    if plan.coupled:
        fewest = max(NEAR_COPIES * trials, float(plan.opening.sum()))
        yield (
            "shared seeds are not simulated: the figures hold for uncorrelated answers; models that hardly differ, "
            f"such as 8-bit weights and their original, take about {fewest:,.0f} trials"
        )
