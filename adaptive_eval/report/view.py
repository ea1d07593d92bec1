"""A stored run as one value, `RunView`, from which reports, monitors and comparisons are made.

`results` has the content of results.json; the other fields are left out there because they grow with the run, or
because only readers of the whole run need them. All are plain values that serialize to JSON; a number that does not
exist is None. No field says where the run is stored, since reports are published.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.planning import core_caps
from adaptive_eval.config.prepare import StoredSetup
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.same_questions import pairs_by_question
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.notes import Event
from adaptive_eval.notes.batches import pending_batches
from adaptive_eval.notes.beginnings import has_foreign_trials
from adaptive_eval.report.build import finite_or_none
from adaptive_eval.report.ending import find_ending, in_folder
from adaptive_eval.report.event_words import event_sentence
from adaptive_eval.report.finding import (
    has_tiers,
    pairing_sentences,
)
from adaptive_eval.report.lines import several
from adaptive_eval.report.looks import changed_horizons, read_look
from adaptive_eval.report.next_steps import Advice, hide_folders, next_steps
from adaptive_eval.report.question_rows import distinct_counts, question_posteriors
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import ReplicaTraffic
from adaptive_eval.report.results import BatchRow, Results
from adaptive_eval.report.snapshot import batch_rows
from adaptive_eval.report.status import Cap, Used, used_caps
from adaptive_eval.report.stored import open_run
from adaptive_eval.report.thresholds import frozen_sentence, kept_thresholds
from adaptive_eval.report.trial_sums import StoredSums
from adaptive_eval.report.words import (
    DecisionsInWords,
    ObjectiveView,
    decisions_in_words,
    objective_view,
)
from adaptive_eval.store.lock import is_held
from adaptive_eval.store.read import StoredLook
from scorio.sinf.compare import compare


@dataclass(frozen=True, slots=True)
class PairView:
    """One comparison at one look; `first` was ranked higher then, and positive z favours it."""

    first: str
    second: str | None
    """None: a fixed value (objectives threshold and precision)."""
    verdict: str
    z: float | None
    boundary: float | None
    information: float | None


@dataclass(frozen=True, slots=True)
class LookView:
    """One complete look; lists are in the order of `models`, which is that of the configuration."""

    look: int
    """Counted from 1."""
    at: float
    """Seconds since 1970."""
    models: tuple[str, ...]
    order: tuple[str, ...]
    """From best to worst."""
    trials: tuple[int, ...]
    tiers: tuple[int, ...]
    scores: tuple[float | None, ...]
    sigmas: tuple[float | None, ...]
    pairs: tuple[PairView, ...]


@dataclass(frozen=True, slots=True)
class EventView:
    """An event of the run."""

    at: float
    kind: str
    text: str | None
    """The event in words; None if displays show it in another way."""


@dataclass(frozen=True, slots=True)
class QuestionView:
    """A question as it was asked."""

    id: str
    prompt: str
    answer: str
    choices: tuple[str, ...]
    cluster: str | None


@dataclass(frozen=True, slots=True)
class PosteriorView:
    """Posterior of a model's score on a question, given the categories of its answers."""

    counts: tuple[int, ...]
    """Trials by category."""
    mean: float
    lo: float
    hi: float
    """A 95% interval."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A whole run without its trials, as pages, reports and comparisons draw it."""

    results: Results | None
    """None before the first look."""
    name: str
    objective: ObjectiveView
    words: DecisionsInWords
    """Decisions and promises in words."""
    configuration: Mapping[str, object]
    """The whole configuration, with all defaults and without secrets."""
    weights: tuple[float, ...]
    categories: tuple[str, ...]
    """Names of the rubric's categories."""
    models: tuple[str, ...]
    """In the order of the configuration."""
    questions: tuple[QuestionView, ...]
    """In the order of the run, which is that of `results.questions` too."""
    trials: tuple[tuple[int, ...], ...]
    """Number of graded trials by [model][question], also those of a round in flight."""
    posteriors: tuple[PosteriorView, ...]
    """Every distinct posterior of these trials, judged by a look or not."""
    posterior_of: tuple[tuple[int, ...], ...]
    """Position in `posteriors` by [model][question]."""
    looks: tuple[LookView, ...]
    z: tuple[tuple[float | None, ...], ...]
    """z of model i against model j after the latest look, by [i][j] in the order of `results.models`; positive if i is
    ahead. Empty before the first look."""
    traffic: tuple[ReplicaTraffic, ...]
    events: tuple[EventView, ...]
    has_tiers: bool
    """`finding.has_tiers`."""
    elapsed: float
    """Seconds the run has been active, over all its starts."""
    ended: str | None = None
    """How the run ended, in a sentence; None while it goes on."""
    next_steps: tuple[Advice, ...] = ()
    """Next steps; empty while the run continues."""
    place: str = "RUN"
    """The run as a command names it, without the folders around it."""
    batches: tuple[BatchRow, ...] = ()
    """Pending batches."""
    thresholds: str | None = None
    """Fitted thresholds and their basis, in a sentence; None if nothing had to be fitted."""
    orders: str | None = None
    """A sentence on how often a judge went by the order of two answers; None without comparisons, and on a page that
    follows the run."""
    by_trial: tuple[str, ...] = ()
    """A sentence for each comparison that is judged by trials with the same seeds."""
    used: Used = Used()
    caps: tuple[Cap, ...] = ()
    """Caps of the budget, with what was used of each."""


def read_view(directory: Path, *, rows: bool = True) -> RunView:
    """Read the run in `directory`; raises `StoreError` if there is none. Without `rows`, those of questions in
    results.json are left out, most of its size in a large run."""
    running = is_held(directory)
    with open_run(directory, check_large=False) as stored:
        results = stored.results(running=running, rows=rows)
        sums = StoredSums(stored.reader, stored.setup, stored.events)
        view = assemble_view(sums, stored.setup, results, stored.used(sums, results), running=running)
        return view if results is None else replace(view, orders=order_sentence(stored.reader, stored.setup.config))


def assemble_view(
    sums: StoredSums, setup: StoredSetup, results: Results | None, used: Used, *, running: bool
) -> RunView:
    """Build the view of a run whose results are known."""
    config, questions, plug_ins, roster = setup
    rubric, events, counts = open_rubric(config.rubric), sums.events, sums.counts
    posteriors, places = posterior_views(counts, rubric.weights)
    thresholds = kept_thresholds(config.rubric, events)
    horizons = [change.was for change in changed_horizons(events)]
    ending = find_ending(events, results, sums.spent().trials, config)
    place = _command_path(config.store, sums.directory)
    ending = in_folder(hide_folders(ending), sums.directory, config.name, place)
    return RunView(
        results=results,
        name=config.name,
        objective=objective_view(config.stated() if results is None else results.decisions),
        words=decisions_in_words(
            config,
            plug_ins,
            began_at=horizons[0] if horizons else config.trials.max,
            imported=has_foreign_trials(events),
        ),
        configuration=config.model_dump(mode="json", exclude={"folder"}),
        weights=rubric.weights,
        categories=rubric.names,
        models=tuple(roster.models),
        questions=tuple(
            QuestionView(question.id, question.prompt, question.answer, question.choices, question.cluster)
            for question in questions
        ),
        trials=tuple(map(tuple, counts.sum(axis=-1).tolist())),
        posteriors=posteriors,
        posterior_of=places,
        looks=tuple(look_views(sums.looks, compared=objective_view(config.stated()).compares)),
        z=z_matrix(results) if config.trials.draw is None else z_of_drawn(results, list(roster.models), counts),
        traffic=tuple(sums.traffic),
        events=tuple(map(event_view, events)),
        batches=batch_rows(pending_batches(events)),
        has_tiers=results is None or has_tiers(results),
        elapsed=sums.elapsed,
        ended=None if running else ending.why,
        next_steps=() if running else tuple(next_steps(ending)),
        place=place,
        thresholds=None if thresholds is None else frozen_sentence(thresholds),
        by_trial=() if results is None else pairing_sentences(results.pairs),
        used=used,
        caps=used_caps(core_caps(config.budget), used, sums.elapsed),
    )


def _command_path(folder: Path, directory: Path) -> str:
    """The run as a command names it: with the configured folder if it is there, else its name alone."""
    is_configured = not folder.is_absolute() and directory.absolute().parent == folder.absolute()
    return shlex.quote(str(folder / directory.name) if is_configured else directory.absolute().name)


def order_sentence(reader: RunReader, config: RunConfig) -> str | None:
    """State how many comparisons of a judge depend on the order of the two answers, and which place they favour.

    Each is asked in both orders, and counts as a tie where these disagree. None if nothing was compared.
    """
    grader = config.grader
    if not isinstance(grader, Judge) or grader.compare_to is None:
        return None
    counts = reader.comparisons()
    compared = sum(row.trials for row in counts)
    if not compared:
        return None
    dependent = sum(row.order_dependent * row.trials for row in counts) / compared
    towards = sum(row.prefers_first * row.trials for row in counts) / compared
    place = "first" if towards > 0 else "second"
    leaning = f", by {abs(towards):.1%} in favour of the {place} place" if round(abs(towards), 3) else ""
    of_order = f"{dependent:.1%} depend on the order of the two answers, and count as ties{leaning}"
    return f"Of {several(compared, 'comparison')} {of_order}."


def posterior_views(
    counts: NDArray[np.integer], weights: Sequence[float]
) -> tuple[tuple[PosteriorView, ...], tuple[tuple[int, ...], ...]]:
    """Distinct posteriors of counts (L, M, K), and the position among them of each model and question."""
    distinct, places = distinct_counts(counts)
    columns = [column.tolist() for column in (distinct, *question_posteriors(distinct, np.array(weights)))]
    posteriors = tuple(PosteriorView(tuple(many), *values) for many, *values in zip(*columns, strict=True))
    return posteriors, tuple(map(tuple, places.tolist()))


def z_matrix(results: Results | None) -> tuple[tuple[float | None, ...], ...]:
    """z of every model against every other, best first; None if a model has no score. Judged pairs have that of the
    latest look."""
    if results is None:
        return ()
    score = np.array([np.nan if model.score is None else model.score for model in results.models])
    variance = np.array([np.nan if model.sigma is None else model.sigma**2 for model in results.models])
    return _with_judged(compare(score[:, None], variance[:, None], score, variance).z, results)


def z_of_drawn(
    results: Results | None, models: Sequence[str], counts: NDArray[np.integer]
) -> tuple[tuple[float | None, ...], ...]:
    """z of every pair on the questions that both were asked, from counts (L, M, K) of all trials of these models;
    judged pairs have that of the latest look."""
    if results is None:
        return ()
    names = [row.name for row in results.models]
    ordered = counts[[models.index(name) for name in names]]
    first, second = np.triu_indices(len(names), 1)
    (paired,) = pairs_by_question(ordered, np.array(results.weights), first, second)
    z = np.full((len(names), len(names)), np.nan)
    z[first, second] = paired.moments.mean / np.sqrt(paired.moments.var)
    return _with_judged(np.where(np.isnan(z), -z.T, z), results)


def _with_judged(z: NDArray[np.float64], results: Results) -> tuple[tuple[float | None, ...], ...]:
    """Rows of the matrix with z of judged pairs as they were judged."""
    place = {row.name: at for at, row in enumerate(results.models)}
    for pair in results.pairs:
        if pair.second is not None and pair.difference is not None and pair.sigma:
            z[place[pair.first], place[pair.second]] = pair.difference / pair.sigma
            z[place[pair.second], place[pair.first]] = -pair.difference / pair.sigma
    return tuple(tuple(finite_or_none(value) for value in row) for row in z.tolist())


def look_views(looks: Sequence[StoredLook], *, compared: bool) -> Iterator[LookView]:
    """Convert looks to plain values, with None for numbers that do not exist."""
    for stored in looks:
        models, look = read_look(stored)
        yield LookView(
            look=look.index + 1,
            at=stored.at,
            models=tuple(models),
            order=tuple(models[model] for model in look.order),
            trials=look.trials,
            tiers=look.tiers,
            scores=tuple(map(finite_or_none, look.scores)),
            sigmas=tuple(map(finite_or_none, look.sigmas)),
            pairs=tuple(
                PairView(
                    first=models[pair.first],
                    second=None if pair.second is None else models[pair.second],
                    verdict=str(pair.verdict),
                    z=finite_or_none(pair.z) if compared else None,
                    boundary=finite_or_none(pair.boundary) if compared else None,
                    information=finite_or_none(pair.information),
                )
                for pair in look.comparisons
            ),
        )


def event_view(event: Event) -> EventView:
    """Convert an event to what reports have of it."""
    return EventView(event.at, event.kind, event_sentence(event))
