"""Replays, from command-line arguments to results in the format of a run.

Trials are drawn from a world of known probabilities, or from a recording.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.benchmarks import BenchmarkPart, Weighing, weigh_questions
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.load import load_benchmarks, load_decisions
from adaptive_eval.config.planning import RunFacts, affordable_trials, plan_on
from adaptive_eval.config.problems import did_you_mean
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Bench, Plan
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.objectives import CHEAPEST
from adaptive_eval.core.tape import Meaning, Tape, without_gaps
from adaptive_eval.core.types import Look, Outcome
from adaptive_eval.exchange.recording import (
    NO_GRADE,
    NO_TRIAL,
    RecordedAnswers,
    Recording,
    count_outcomes,
    read_recording,
    recording_of_run,
)
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.machine.repeats import MIN_PAIRS, AnswerWatch, find_repeats, repeats_sentence
from adaptive_eval.machine.trial import Trial
from adaptive_eval.machine.usage import TrialUsage
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.report.build import build_results
from adaptive_eval.report.results import Caution, Results
from adaptive_eval.report.snapshot import RunSubject, complete, take_state
from adaptive_eval.report.warnings import REPEATS_COUNT, REPEATS_UNCLEAR
from adaptive_eval.simulate.worlds import WORLDS, World
from adaptive_eval.study.drive import drive
from scorio.moments import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeSource:
    """Models and questions with the chances of their trials; a recording's chances are its shares."""

    name: str
    models: tuple[str, ...]
    questions: tuple[str, ...]
    weights: FloatArray
    chances: FloatArray
    """(L, M, K): the probability of each category."""
    counts: IntArray | None = None
    """(L, M, K): recorded counts."""
    outcomes: IntArray | None = None
    """(L, M, N): recorded outcomes in their order, -1 for no trial, -2 for one without a grade."""
    kinds: IntArray | None = None
    """(L, M, N): the kinds of their answers, if recorded."""
    answers: tuple[RecordedAnswers, ...] | None = None
    """Facts about each model's answers, if the recording has more than grades."""
    weighing: Weighing | None = None
    """Weights of the questions, if they come from several benchmarks."""
    repeats_count: bool = False
    """Whether repeated answers count as samples."""

    @property
    def truth(self) -> FloatArray:
        """(L,): the true scores, with which every estimate is compared."""
        return self.bench.mean(self.chances @ self.weights)

    @property
    def bench(self) -> Bench:
        """The bench for the core."""
        shares = {} if self.weighing is None else self.weighing._asdict()
        return Bench(len(self.models), len(self.questions), self.weights, **shares)

    @property
    def recorded(self) -> NDArray[np.int64] | None:
        """(L, M): numbers of recorded trials; None for a world, whose trials are unlimited."""
        if self.outcomes is not None:
            return np.asarray((self.outcomes != NO_TRIAL).sum(axis=-1))
        return None if self.counts is None else self.counts.sum(axis=-1)

    def shuffled(self, rng: np.random.Generator) -> "OutcomeSource":
        """The source with its questions in a random order."""
        return self._pick(np.arange(len(self.models)), rng.permutation(len(self.questions)))

    def best(self, number: int) -> "OutcomeSource":
        """The `number` models with the highest true scores, best first."""
        return self._pick(np.argsort(-self.truth, kind="stable")[:number], np.arange(len(self.questions)))

    def _pick(self, models: NDArray[np.intp], questions: NDArray[np.intp]) -> "OutcomeSource":
        """The source with these models and questions, in this order."""
        cells = np.ix_(models, questions)
        return replace(
            self,
            models=tuple(self.models[model] for model in models),
            questions=tuple(self.questions[question] for question in questions),
            chances=self.chances[cells],
            counts=None if self.counts is None else self.counts[cells],
            outcomes=None if self.outcomes is None else self.outcomes[cells],
            kinds=None if self.kinds is None else self.kinds[cells],
            answers=None if self.answers is None else tuple(self.answers[model] for model in models),
            weighing=None if self.weighing is None else self.weighing.reordered(questions),
        )

    def tape(self, rng: np.random.Generator, *, in_order: bool = False, by_number: bool = False) -> Tape:
        """Trials in random order, or in recorded order if it is known; those of a recording are drawn without
        replacement. `by_number`: in recorded order each trial keeps its number, with a draw in place of a missing one.
        """
        if self.counts is None:
            return Tape.from_chances(self.chances, self.weights, rng)
        if self.outcomes is None:
            return Tape.from_counts(self.counts, self.weights, rng)
        values, meanings = self._numbered()
        counts = count_outcomes(values)
        if not in_order:
            return Tape.from_counts(counts, self.weights, rng, meanings)
        shares = counts / counts.sum(axis=-1, keepdims=True)
        return Tape.continued(values if by_number else without_gaps(values), shares, self.weights, rng, meanings)

    def _numbered(self) -> tuple[IntArray, list[Meaning]]:
        """(L, M, N): a number for each trial by its grade and the kinds of its answer, -1 for no trial; and what the
        numbers stand for."""
        assert self.outcomes is not None
        there = self.outcomes != NO_TRIAL
        kinds = np.zeros_like(self.outcomes) if self.kinds is None else self.kinds
        pairs, numbers = np.unique(np.stack([self.outcomes[there], kinds[there]]), axis=1, return_inverse=True)
        values = np.full(self.outcomes.shape, NO_TRIAL)
        values[there] = numbers.ravel()
        return values, [(None if grade == NO_GRADE else grade, kind) for grade, kind in pairs.T.tolist()]


def source_of_recording(recording: Recording, name: str, weights: FloatArray) -> OutcomeSource:
    """A recording as a source, with the weights of a rubric."""
    counts, categories = recording.counts, len(weights)
    if counts.shape[-1] > categories:
        raise ConfigError(
            f"{name} has trials of category {counts.shape[-1] - 1}, but the rubric has the categories 0 to "
            f"{categories - 1}; give a rubric with a weight for each, such as one of `rubric.categories`"
        )
    counts = np.pad(counts, ((0, 0), (0, 0), (0, categories - counts.shape[-1])))
    return OutcomeSource(
        name=name,
        models=recording.models,
        questions=recording.questions,
        weights=weights,
        chances=counts / counts.sum(axis=-1, keepdims=True),
        counts=counts,
        outcomes=recording.outcomes,
        kinds=recording.kinds,
        answers=recording.answers,
        weighing=recording.weighing,
        repeats_count=recording.repeats_count,
    )


@dataclass(frozen=True, slots=True)
class PreparedReplay:
    """A replay that is ready to start."""

    source: OutcomeSource
    plan: Plan
    decisions: Decisions
    lacks_prior: bool = False
    """Whether the run whose settings it has counts outcomes of another one, R0."""

    def plan_in_order(self, *, recorded: bool) -> Plan:
        """The plan for trials in `recorded` order, or in another, in which trials of one number share no seed."""
        return replace(self.plan, coupled=self.plan.coupled and recorded)


def prepare_replay(source_name: str, config: Path | None, overrides: Sequence[str], top: int | None) -> PreparedReplay:
    """Read the recording and the configuration; raises `ConfigError`.

    `source_name` is a world's name, the path of an .npz file, or a run directory. With `top`, only that many of the
    best models are kept.
    """
    drawn_from = _open_outcomes(source_name)
    own = drawn_from.config if isinstance(drawn_from, Recording) and config is None else None
    default = {} if own is None else _settings_of_run(own, source_name)
    decisions = load_decisions(config, overrides, drawn_from.models, default)
    benchmarks = () if config is None else load_benchmarks(config, overrides)
    source = _source(drawn_from, source_name, decisions, benchmarks, has_config=config is not None)
    if top is not None:
        source = source.best(top)
        decisions = load_decisions(config, overrides, source.models, default)  # may name omitted models
    _require_countable(decisions)
    facts = RunFacts(coupled=decisions.trials.seeds == "coupled" and source.outcomes is not None)
    usual = plan_on(source.bench, decisions, source.models, facts)
    decisions = decisions.model_copy(update={"trials": affordable_trials(decisions.trials, usual)})
    lacks_prior = own is not None and own.prior is not None
    return PreparedReplay(source, plan_on(source.bench, decisions, source.models, facts), decisions, lacks_prior)


def _open_outcomes(name: str) -> World | Recording:
    """The world, file or run of this name."""
    path = Path(name)
    if name in WORLDS:
        return WORLDS[name]()
    if not path.exists():
        hint = did_you_mean(name, WORLDS, f"the worlds are {', '.join(WORLDS)}")
        raise ConfigError(f"{name} is neither a file, nor a run, nor a world; {hint}")
    if path.is_dir():
        return recording_of_run(path)
    if path.suffix in (".yaml", ".yml"):
        hint = f"name an .npz file, a run or a world, and give this with --config {name}"
        raise ConfigError(f"{name} is a configuration, which has no outcomes; {hint}")
    return read_recording(path)


def _settings_of_run(config: RunConfig, name: str) -> dict[str, object]:
    """The settings by which a run decided, but for caps on what a replay lacks."""
    if config.plug_ins:
        code = ", ".join(f"{key}: {plug_in}" for key, plug_in in config.plug_ins.items())
        raise ConfigError(f"{name} decides by code of its own ({code}); name the run's file with --config")
    settings = config.model_dump(mode="json", include={"rubric", "objective", "stopping", "trials"}, exclude_none=True)
    return settings | {"budget": {"trials": config.budget.trials}}


def _source(
    drawn_from: World | Recording,
    name: str,
    decisions: Decisions,
    benchmarks: Sequence[BenchmarkPart],
    *,
    has_config: bool,
) -> OutcomeSource:
    if isinstance(drawn_from, World):
        return OutcomeSource(drawn_from.name, drawn_from.models, drawn_from.questions, drawn_from.w, drawn_from.p)
    weights = drawn_from.weights
    if weights is None or has_config:
        weights = np.array(open_rubric(decisions.rubric).weights, dtype=float)
    path = Path(name)
    source = source_of_recording(drawn_from, path.name if path.is_dir() else path.stem, weights)
    if {benchmark_named(question) for question in source.questions} <= {part.name for part in benchmarks}:
        source = replace(source, weighing=weigh_questions(benchmarks, source.questions))
    return source


def _require_countable(decisions: Decisions) -> None:
    """Raise `ConfigError` for a cap on something that a replay lacks, or an objective that compares costs."""
    for name in ("tokens", "usd", "gpu_hours", "wall_time"):
        if getattr(decisions.budget, name) is not None:
            reason = "whose trials have no tokens and no price, and take no time of their own"
            raise ConfigError(f"budget.{name} cannot be kept in a replay, {reason}; --set budget.{name}=null")
    if decisions.objective.kind == CHEAPEST.name:
        reason = "whose trials have no cost; name another, as in --set objective=best"
        raise ConfigError(f"objective.kind: cheapest cannot be kept in a replay, {reason}")


class PerformedReplay(NamedTuple):
    """A replay at its end."""

    controller: Controller
    source: OutcomeSource
    """With its questions in the order of asking."""
    usages: tuple[TrialUsage, ...]
    """Sums over each model's trials."""


def perform_replay(
    prepared: PreparedReplay, seed: int | None, on_look: Callable[[Look], None] | None = None
) -> PerformedReplay:
    """Replay with trials in random order by seed, or for None in recorded order; drawn questions are shuffled."""
    source, plan = prepared.source, prepared.plan_in_order(recorded=seed is None)
    answers = source.answers or [RecordedAnswers(AnswerWatch(), None)] * len(source.models)
    is_void = plan.stops_on_alarm and not source.repeats_count
    repeats = {model: find_repeats(*facts) for model, facts in enumerate(answers) if is_void}
    void = {
        model: repeats_sentence(found) for model, found in repeats.items() if found is not None and found.is_certain
    }
    controller = Controller(plan, find_void=lambda *_: void)
    rng = np.random.default_rng([seed or 0, 0])
    if plan.drawn:
        source = source.shuffled(np.random.default_rng([seed or 0, 2]))
    tape = source.tape(rng, in_order=seed is None, by_number=plan.coupled)
    usages = tuple(TrialUsage(watch=facts.watch.copy()) for facts in answers)

    def count(outcomes: Sequence[Outcome]) -> None:
        for model, question, trial, category, _, kinds, _ in outcomes:
            usages[model].add(Trial(model, question, trial, 0, category=category, kinds=kinds))

    drive(controller, tape, on_look, count).count_overrun(range(plan.bench.models))  # all that was asked has come
    return PerformedReplay(controller, source, usages)


def replay_results(replay: PerformedReplay, decisions: Decisions, now: float) -> Results | None:
    """Results of the replay, at `now` in seconds since 1970; None if it ended before its first look."""
    controller, source, usages = replay
    subject = RunSubject(
        name=source.name,
        models=source.models,
        questions=source.questions,
        sampled=tuple(facts.sampled for facts in source.answers or ()) or (None,) * len(source.models),
        created=now,
        decisions=decisions.stated(),
    )
    state = take_state(subject, controller, subject.find_repeats(usages))
    if state is None:
        return None
    results = build_results(complete(subject, state, usages, elapsed=0.0, now=now, stopped=False))
    counted = [REPEATS_COUNT] if source.repeats_count else []
    warnings = (
        *results.warnings,
        *counted,
        *_beyond_record_caution(source, controller),
        *_equal_grades_caution(source),
    )
    return replace(results, warnings=warnings)


def _equal_grades_caution(source: OutcomeSource) -> Iterator[Caution]:
    """Warn of models whose trials of each question all have one grade, if only grades were recorded."""
    if source.counts is None or source.answers is not None:
        return
    trials = source.counts.sum(axis=-1)
    for name, counts, per_question in zip(source.models, source.counts, trials, strict=True):
        pairs = int((per_question // 2).sum())
        if (
            pairs >= MIN_PAIRS
            and (counts.max(axis=-1) == per_question).all()
            and np.count_nonzero(counts.any(axis=0)) > 1
        ):
            text = (
                f"all trials of each question have one and the same grade ({int(per_question.sum()):,} trials of "
                f"{len(per_question)} questions), as if one answer had been counted many times: either a server "
                "ignores the seed, or the model is sure of each answer; grades alone cannot tell which"
            )
            yield Caution(REPEATS_UNCLEAR, name, text)


def _beyond_record_caution(source: OutcomeSource, controller: Controller) -> Iterator[Caution]:
    """Warn of unrecorded trials, which make a replay more certain than the recording is."""
    if source.recorded is None:
        return
    trials = controller.arrived.sum(axis=-1)
    beyond = int(np.maximum(trials - source.recorded, 0).sum())
    if beyond:
        text = (
            f"{beyond:,} of {int(trials.sum()):,} trials go beyond what was recorded ({source.recorded.min()} to "
            f"{source.recorded.max()} per question), and are drawn from the recorded shares as if true; "
            "a smaller trials.max keeps a replay within its record"
        )
        yield Caution("beyond_record", None, text)
