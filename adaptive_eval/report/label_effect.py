"""Effect of people's labels on a run: the grader's errors, and scores corrected for them.

Scores are corrected by prediction-powered inference (`scorio.eval.corrected`), benchmark by benchmark if there are
several. A model's labelled answers must have been drawn regardless of their content, as `adaptive-eval label` does.
What a run asks does not depend on labels; what its results say does (`core.corrected`).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from adaptive_eval.base.errors import ConfigError, GraderError
from adaptive_eval.base.roster import Roster
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.corrected import ScoreCorrection
from adaptive_eval.core.evidence import Estimates, estimate
from adaptive_eval.core.settings import Bench
from adaptive_eval.graders.ballots import VERDICT
from adaptive_eval.graders.by_benchmark import graders_by_benchmark
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.rubric import Rubric, apply_rubric
from adaptive_eval.graders.scoring import SCORE
from adaptive_eval.graders.types import GraderOptions, answer_facts
from adaptive_eval.graders.verifier import Verifier
from adaptive_eval.report.label_file import (
    LABELS_FILE,
    RIGHT,
    GivenLabel,
    Labelled,
    Labels,
    grader_of,
    is_label,
    label_fields,
    labels_digest,
    level_from_signals,
    levels_among,
    read_labels,
    signals_of_level,
)
from adaptive_eval.report.labelled import MIN_LABELS, LabelledModel, LabelledRun
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.thresholds import kept_rubric
from scorio.eval import corrected

CONFIDENCE = 0.95
"""Confidence that the grader's errors differ between models."""
MIN_SIGMA = 1e-9
NO_LABEL = ""


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """An answer with a label."""

    question: int
    place: int
    """Its number among the graded trials of its model and question, from 0: it counts once so many are judged."""
    grade: float
    """The value of its grade."""
    worth: float
    """The value that its label would give it."""
    label: str
    level: str
    """The grader's category."""


@dataclass(frozen=True, slots=True)
class RunLabels:
    """Labels of a run, as they were read, with the grades of their answers."""

    digest: str
    number: int
    """All labels, also of answers that the run does not have."""
    grader: str
    levels: tuple[str, ...] = ()
    answers: Mapping[str, tuple[LabelledAnswer, ...]] | None = None
    """Labelled answers by model; None if the labels cannot be used."""
    foreign: tuple[str, ...] = ()
    """The labels that the grader does not have, each as often as it was given."""
    problem: str | None = None
    """Why the labels cannot be used."""


def read_run_labels(reader: RunReader, config: RunConfig, roster: Roster) -> RunLabels | None:
    """Read the labels of a run and the grades of their answers; None without labels."""
    if not (reader.directory / LABELS_FILE).exists():
        return None
    kind, digest = str(config.grader.kind), ""
    try:
        digest, labels = labels_digest(reader.directory) or "", read_labels(reader.directory)
        rubric = kept_rubric(config.rubric, reader.events())
        require_useful_labels(config.grader, rubric)
        if not labels:
            return None
        found = find_labelled(reader, labels, config.grader, roster)
        answers = _labelled_answers(found.answers, config.grader, rubric, roster)
    except ConfigError as error:
        return RunLabels(digest, 0, kind, problem=str(error).replace(f"{reader.directory}/", ""))
    occurring = (
        level
        for model_answers in answers.values()
        for answer in model_answers
        for level in (answer.label, answer.level)
    )
    levels = levels_among(config.grader, occurring)
    return RunLabels(digest, len(labels), kind, levels, answers, found.foreign)


class LabelSource:
    """The labels of a running run, read again whenever their file has changed."""

    def __init__(self, reader: RunReader, config: RunConfig, roster: Roster) -> None:
        self._of = reader, config, roster
        self._path: Path = reader.directory / LABELS_FILE
        self._stamp: tuple[int, int, int] | None = None
        self._labels: RunLabels | None = None

    def current(self, *, anew: bool = False) -> RunLabels | None:
        """The labels as they are now; `anew`: read them even if their file is the same, since grades may be new."""
        stamp = None
        if self._path.exists():
            stat = self._path.stat()
            stamp = stat.st_ino, stat.st_size, stat.st_mtime_ns
        if stamp != self._stamp or (anew and stamp is not None):
            self._stamp, self._labels = stamp, read_run_labels(*self._of)
        return self._labels


def require_useful_labels(grader: GraderOptions, rubric: Rubric) -> None:
    """Raise `ConfigError` if the rubric uses no signal that a label gives."""
    given = {VERDICT, "is_correct"}
    for benchmark_grader in graders_by_benchmark(grader).values():
        given.update(field.name for field in label_fields(benchmark_grader))
        if isinstance(benchmark_grader, Judge):
            given.add(SCORE)
        if isinstance(benchmark_grader, Verifier):
            given |= benchmark_grader.make_signals(RIGHT).keys()
    if not rubric.needs & given:
        raise ConfigError(
            "labels replace the grader's verdict, but the rubric of this run depends on "
            f"{', '.join(sorted(rubric.needs))}, which no label has; use another rubric: "
            "`adaptive-eval regrade RUN --config CONFIG`"
        )


def category_of_label(record: TrialRecord, label: str, grader: GraderOptions, rubric: Rubric) -> int:
    """The category that an answer would have if its grade were this label; raises `ConfigError` if that is unknown."""
    facts = {**answer_facts(record.answer), **record.signals, **signals_of_level(grader, label)}
    try:
        return apply_rubric(facts, rubric, record.question)
    except GraderError as error:  # an imported grade may come without the signals that it rests on
        raise ConfigError(f"labels of {record.model} have no category: {error}") from error


class FoundLabels(NamedTuple):
    """The labels of a run by what they are about."""

    answers: Mapping[Labelled, tuple[int, TrialRecord, str]]
    """Graded answers with a label: the place among those of its model and question, the trial, and the label."""
    foreign: tuple[str, ...]
    """As in `RunLabels`."""


def find_labelled(reader: RunReader, labels: Labels, grader: GraderOptions, roster: Roster) -> FoundLabels:
    """Find the answers of these labels."""
    by_cell: dict[tuple[str, str], dict[int, GivenLabel]] = defaultdict(dict)
    foreign = []
    for at, given in labels.items():
        if (at.model, at.question) not in roster:
            continue
        if is_label(label_fields(grader_of(grader, at.question)), given.label):
            by_cell[at.model, at.question][at.trial] = given
        else:
            foreign.append(given.label)
    answers = {}
    for (model, question), labelled in by_cell.items():
        graded = (record for record in reader.cell(model, question) if record.category is not None)
        for place, record in enumerate(graded):
            if record.trial in labelled and labelled[record.trial].fits(record.answer):
                at = Labelled(model, question, record.trial)
                answers[at] = place, record, labelled[record.trial].label
    return FoundLabels(answers, tuple(sorted(foreign)))


def _labelled_answers(
    found: Mapping[Labelled, tuple[int, TrialRecord, str]], grader: GraderOptions, rubric: Rubric, roster: Roster
) -> dict[str, tuple[LabelledAnswer, ...]]:
    answers: dict[str, list[LabelledAnswer]] = defaultdict(list)
    for at, (place, record, label) in found.items():
        assert record.category is not None
        question_grader, number = grader_of(grader, at.question), roster.questions.position(at.question)
        worth = rubric.weights[category_of_label(record, label, question_grader, rubric)]
        level, grade = level_from_signals(question_grader, record.signals), rubric.weights[record.category]
        answers[at.model].append(LabelledAnswer(number, place, grade, worth, label, level))
    return {model: tuple(model_answers) for model, model_answers in answers.items()}


# -- scores ------------------------------------------------------------------------------------------------------------


class CorrectedScore(NamedTuple):
    """A score with its variance, and its shift by labels."""

    score: float
    var: float
    shift: float
    shift_var: float


def correct_scores(
    labels: RunLabels, models: Sequence[str], controller: Controller
) -> tuple[LabelledRun, ScoreCorrection | None, Mapping[tuple[int, int], CorrectedScore]]:
    """Labels of a run after its latest look, their correction of its scores, which is None without one, and corrected
    scores by model and benchmark."""
    answers, bench = labels.answers, controller.plan.bench
    if answers is None or controller.last_look is None:
        return LabelledRun(labels.digest, labels.grader, problem=labels.problem), None, {}
    estimates, counts = controller.last_look.estimates, controller.counts
    prior = bench.prior_counts
    alone = prior is not None and bool(prior[bench.asked].any())
    shift = np.full((bench.models, 1 + len(bench.gates)), np.nan)
    variance, rows, on_parts = shift.copy(), [], dict[tuple[int, int], CorrectedScore]()
    for model, name in enumerate(models):
        judged = [answer for answer in answers.get(name, ()) if answer.place < counts[model, answer.question].sum()]
        by_grades = _own_estimate(controller, estimates, counts[model], model, alone=alone)
        parts = {} if by_grades is None else _corrected_parts(judged, counts[model], by_grades, controller)
        on_parts |= {(model, label): part for label, part in parts.items()}
        total = _combine(parts, bench)
        if total is not None:
            shift[model, 0], variance[model, 0] = total.score - estimates.score[model], total.var - estimates.var[model]
            for part, (label, _) in enumerate(bench.gates):
                shift[model, 1 + part] = parts[label].score - estimates.parts[model, part, 0]
                variance[model, 1 + part] = parts[label].var - estimates.parts[model, part, 1]
        if trials := int(counts[model].sum()):
            rows.append(_model_row(name, trials, judged, by_grades, total, labels.levels))
    rows.sort(key=lambda row: -np.inf if row.score is None else row.score, reverse=True)
    labelled_run = LabelledRun(
        labels.digest,
        labels.grader,
        labels.levels,
        tuple(rows),
        _shifts_differ(rows),
        labels.number - sum(row.labels for row in rows) - len(labels.foreign),
        alone=alone,
        foreign=len(labels.foreign),
        foreign_names=tuple(dict.fromkeys(labels.foreign)),
    )
    return labelled_run, ScoreCorrection(shift, variance) if labelled_run.corrected else None, on_parts


def _own_estimate(
    controller: Controller, estimates: Estimates, counts: NDArray[np.int32], model: int, *, alone: bool
) -> tuple[float, float] | None:
    """A model's score and its variance, by its own answers alone; None if it has none."""
    if not alone:
        score, var = float(estimates.score[model]), float(estimates.var[model])
        return (score, var) if isfinite(score) and isfinite(var) and counts.any() else None
    if not counts.any(axis=-1).all():
        return None
    bench = controller.plan.bench
    g, groups = bench.question_weights, bench.benchmark_of
    own_estimates = estimate(
        counts[None], bench.weights, controller.plan.prior, np.array(1), bayes=False, g=g, groups=groups
    )
    return float(own_estimates.score[0]), float(own_estimates.var[0])


def _corrected_parts(
    judged: Sequence[LabelledAnswer], counts: NDArray[np.int32], by_grades: tuple[float, float], controller: Controller
) -> dict[int, CorrectedScore]:
    """Corrected scores of a model by benchmark, 0 if there is only one; empty if one of them has too few labels."""
    plan, bench = controller.plan, controller.plan.bench
    benchmark = np.zeros(bench.questions, np.int64) if bench.benchmark_of is None else bench.benchmark_of
    parts = {}
    for label in np.unique(benchmark).tolist():
        of_part = benchmark == label
        score, var = by_grades
        if bench.benchmark_of is not None:
            estimates = estimate(counts[None, of_part], bench.weights, plan.prior, np.array(1), bayes=False)
            score, var = float(estimates.score[0]), float(estimates.var[0])
        answers = [answer for answer in judged if of_part[answer.question]]
        if len(answers) < MIN_LABELS:
            return {}
        asked = of_part & counts.any(axis=-1)
        trials, place = counts[asked].sum(axis=-1), np.cumsum(asked) - 1
        correction = corrected(
            (score, sqrt(var)),
            [answer.grade for answer in answers],
            [answer.worth for answer in answers],
            [int(place[answer.question]) for answer in answers],
            means=(counts[asked] @ bench.weights / trials).tolist(),
            trials=trials.tolist(),
            span=float(np.ptp(bench.weights)),
        )
        # beyond the scale it can only be wrong, as when not every answer was as likely to be labelled
        corrected_score = float(np.clip(correction.mu, bench.weights.min(), bench.weights.max()))
        parts[label] = CorrectedScore(corrected_score, correction.sigma**2, correction.shift, correction.shift_sigma**2)
    return parts


def _combine(parts: Mapping[int, CorrectedScore], bench: Bench) -> CorrectedScore | None:
    """The score on all questions from those by benchmark; None without parts."""
    if not parts:
        return None
    if bench.benchmark_of is None:
        return parts[0]
    shares = {label: float(bench.mean((bench.benchmark_of == label).astype(float))) for label in parts}
    score, shift = (sum(shares[label] * part[at] for label, part in parts.items()) for at in (0, 2))
    var, shift_var = (sum(shares[label] ** 2 * part[at] for label, part in parts.items()) for at in (1, 3))
    return CorrectedScore(score, var, shift, shift_var)


def _model_row(
    name: str,
    trials: int,
    judged: Sequence[LabelledAnswer],
    by_grades: tuple[float, float] | None,
    total: CorrectedScore | None,
    levels: Sequence[str],
) -> LabelledModel:
    columns = (*levels, NO_LABEL)
    seen = Counter((answer.label, answer.level if answer.level in levels else NO_LABEL) for answer in judged)
    confusion = tuple(tuple(seen[row, column] for column in columns) for row in levels)
    score, sigma = (None, None) if by_grades is None else (by_grades[0], sqrt(by_grades[1]))
    row = LabelledModel(name, trials, len(judged), confusion, score, sigma)
    if total is None:
        return row
    return replace(
        row,
        corrected=total.score,
        corrected_sigma=sqrt(total.var),
        shift=total.shift,
        shift_sigma=sqrt(total.shift_var),
    )


def _shifts_differ(models: Sequence[LabelledModel]) -> bool:
    """The shifts differ significantly: sum of (shift - mean)^2 / variance against chi-squared."""
    known = [row for row in models if row.shift is not None]
    if len(known) < 2:
        return False
    shifts = np.array([row.shift for row in known])
    weights = np.array([1.0 / max(row.shift_sigma or 0.0, MIN_SIGMA) ** 2 for row in known])
    mean = (weights @ shifts) / weights.sum()
    return bool(weights @ (shifts - mean) ** 2 > 2.0 * gammaincinv((len(known) - 1) / 2.0, CONFIDENCE))
