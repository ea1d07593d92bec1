"""Effect of people's labels on a run: the grader's errors, and scores corrected for them.

Scores are corrected by prediction-powered inference (`scorio.eval.corrected`). A model's labelled answers must have
been drawn regardless of their content, as `choose_answers_to_label` does. The run itself stays unchanged.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from math import sqrt

import numpy as np
from scipy.special import gammaincinv

from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.evidence import estimate
from adaptive_eval.graders.rubric import Rubric, apply_rubric
from adaptive_eval.graders.types import answer_facts
from adaptive_eval.labels.file import (
    Labelled,
    Labels,
    is_label,
    label_fields,
    level_from_signals,
    levels_among,
    read_labels,
    require_useful_labels,
    signals_of_level,
)
from adaptive_eval.record.labelled import MIN_LABELS, LabelledModel, LabelledPair, LabelledRun
from adaptive_eval.record.rescore import judged_rows
from adaptive_eval.record.restore import StoredRun
from adaptive_eval.store import TrialFacts, TrialRecord
from scorio.eval import corrected

CONFIDENCE = 0.95
"""Confidence that the grader's errors differ between models."""
MIN_SIGMA = 1e-9
NO_LABEL = ""


@dataclass(frozen=True, slots=True)
class _LabelledAnswer:
    """An answer with a label, the scores of its grade and of its label, and the grader's level."""

    question: int
    grade: float
    worth: float
    label: str
    said: str


def labelled_run(stored: StoredRun, labels: Labels | None = None) -> LabelledRun | None:
    """Compare a run with its labels; None if it has none. Raises `ConfigError` if no label could say anything."""
    labels = read_labels(stored.reader.directory) if labels is None else labels
    if not labels:
        return None
    config, rubric = stored.setup.config, stored.rubric
    require_useful_labels(config, rubric)
    rows = judged_rows(stored)
    trials = Counter(row.model for row in rows)
    found = _labelled_answers(stored, labels, rubric, rows)
    there = (level for some in found.values() for one in some for level in (one.label, one.said))
    levels = levels_among(label_fields(config), there)
    scores, alone = _own_scores(stored)
    models = tuple(
        _model(name, trials[name], found.get(name, []), scores[name], stored, levels) for name in scores if trials[name]
    )
    pairs, differ = tuple(_corrected_pairs(models)), _shifts_differ(models)
    left_out = len(labels) - sum(map(len, found.values()))
    return LabelledRun(
        config.name, config.grader.kind, levels, rubric.weights, models, pairs, differ, left_out, alone=alone
    )


def _own_scores(stored: StoredRun) -> tuple[dict[str, tuple[float | None, float | None]], bool]:
    """Each model's score and sigma, best first, and whether R0 was left out, since it has no labels."""
    results = stored.results(running=True)
    rows = () if results is None else results.models
    if not any(row.prior_depth for row in rows):
        return {row.name: (row.score, row.sigma) for row in rows}, False
    counts, weights = stored.counts(), np.array(stored.rubric.weights, dtype=float)
    own = counts.own
    known = np.flatnonzero(own.any(axis=-1).all(axis=-1))
    g, groups = stored.plan.bench.question_weights, stored.plan.bench.benchmark_of
    prior, trials = stored.setup.config.stopping.prior, own[known].sum(axis=-1)
    found = estimate(own[known], weights, prior, trials, g=g, groups=groups)
    scores: dict[str, tuple[float | None, float | None]] = {row.name: (None, None) for row in rows}
    for model, score, var in zip(known.tolist(), found.score.tolist(), found.var.tolist(), strict=True):
        scores[counts.roster.models[model]] = (score, sqrt(var))
    return scores, True


def _labelled_answers(
    stored: StoredRun, labels: Labels, rubric: Rubric, rows: Sequence[TrialFacts]
) -> dict[str, list[_LabelledAnswer]]:
    judged = {(row.model, row.question, row.trial) for row in rows}
    numbers, fields = stored.setup.roster.questions, label_fields(stored.setup.config)
    wanted: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for at, label in labels.items():
        if at in judged and is_label(fields, label):
            wanted[at.model, at.question][at.trial] = label
    found: dict[str, list[_LabelledAnswer]] = defaultdict(list)
    for (model, question), some in wanted.items():
        for record in stored.reader.cell(model, question):
            if record.trial in some and record.category is not None:
                label = some[record.trial]
                worth = rubric.weights[category_of_label(record, label, stored.setup.config, rubric)]
                said = level_from_signals(stored.setup.config, record.signals)
                grade = rubric.weights[record.category]
                found[model].append(_LabelledAnswer(numbers.position(question), grade, worth, label, said))
    return found


def category_of_label(record: TrialRecord, label: str, config: RunConfig, rubric: Rubric) -> int:
    """The category that an answer would have if its grade were this label."""
    facts = {**answer_facts(record.answer), **record.signals, **signals_of_level(config, label)}
    category = apply_rubric(facts, rubric, record.question).category
    assert category is not None  # thresholds are frozen where a trial has a category
    return category


def _model(
    name: str,
    trials: int,
    graded: Sequence[_LabelledAnswer],
    score: tuple[float | None, float | None],
    stored: StoredRun,
    levels: Sequence[str],
) -> LabelledModel:
    columns = (*levels, NO_LABEL)
    seen = Counter((one.label, one.said if one.said in levels else NO_LABEL) for one in graded)
    confusion = tuple(tuple(seen[row, column] for column in columns) for row in levels)
    fixed: tuple[float | None, ...] = (None, None, None, None)
    # the correction assumes that all questions weigh the same
    alike = not stored.setup.config.benchmarks
    if alike and len(graded) >= MIN_LABELS and score[0] is not None and score[1] is not None:
        counts, weights = stored.counts(), np.array(stored.rubric.weights, dtype=float)
        own = counts.own[counts.roster.models.position(name)]
        own = own[tried := own.any(axis=-1)]
        each, place = own.sum(axis=-1), np.cumsum(tried) - 1
        fixed = corrected(
            (score[0], score[1]),
            [one.grade for one in graded],
            [one.worth for one in graded],
            [int(place[one.question]) for one in graded],
            means=(own @ weights / each).tolist(),
            trials=each.tolist(),
            span=float(np.ptp(weights)),
        )
    return LabelledModel(name, trials, len(graded), confusion, *score, *fixed)


def _corrected_pairs(models: Sequence[LabelledModel]) -> Iterator[LabelledPair]:
    known = [
        (one.score, one.name, one.corrected, one.corrected_sigma)
        for one in models
        if one.score is not None and one.corrected is not None and one.corrected_sigma is not None
    ]
    for first, second in combinations(sorted(known, key=lambda one: -one[0]), 2):
        yield LabelledPair(first[1], second[1], first[2] - second[2], sqrt(first[3] ** 2 + second[3] ** 2))


def _shifts_differ(models: Sequence[LabelledModel]) -> bool:
    """The shifts differ significantly: sum of (shift - mean)^2 / variance against chi-squared."""
    known = [(one.shift, one.shift_sigma) for one in models if one.shift is not None and one.shift_sigma is not None]
    if len(known) < 2:
        return False
    shifts = np.array([shift for shift, _ in known])
    weights = np.array([1.0 / max(sigma, MIN_SIGMA) ** 2 for _, sigma in known])
    mean = (weights @ shifts) / weights.sum()
    return bool(weights @ (shifts - mean) ** 2 > 2.0 * gammaincinv((len(known) - 1) / 2.0, CONFIDENCE))


# -- which answers to label next -------------------------------------------------------------------------------------


def choose_answers_to_label(stored: StoredRun, labels: Labels, number: int) -> list[Labelled]:
    """Choose the answers whose labels help most to decide open comparisons.

    The model is the one whose next label reduces the variances of comparisons that are open after correction most. Its
    answers come from each question in turn, in a pseudorandom order that depends on their names alone, so that they are
    chosen regardless of their content.
    """
    waiting = _unlabelled_answers(stored, labels)
    counts = Counter(at.model for at in labels)
    found = labelled_run(stored, labels)
    chosen: list[Labelled] = []
    while len(chosen) < number and any(waiting.values()):
        model = max((name for name, some in waiting.items() if some), key=lambda name: _label_gain(name, counts, found))
        chosen.append(waiting[model].pop(0))
        counts[model] += 1
    return chosen


def _label_gain(model: str, counts: Mapping[str, int], found: LabelledRun | None) -> tuple[float, int]:
    """Sort key of a model: how much a label reduces the variances of its open comparisons, then the fewest labels."""
    number = counts[model]
    pairs = () if found is None else found.pairs
    one = None if found is None else next((row for row in found.models if row.name == model), None)
    if one is None or one.shift_sigma is None or number < MIN_LABELS:
        return float("inf"), -number
    less = one.shift_sigma**2 * one.labels * (1.0 / number - 1.0 / (number + 1))
    open_pairs = [pair for pair in pairs if pair.corrected_order == "open" and model in (pair.ahead, pair.behind)]
    return sum(less / pair.sigma**2 for pair in open_pairs), -number


def _unlabelled_answers(stored: StoredRun, labels: Labels) -> dict[str, list[Labelled]]:
    """Answers without a label, by model, in the order of labelling."""
    cells: dict[tuple[str, str], list[Labelled]] = defaultdict(list)
    for row in judged_rows(stored):
        cells[row.model, row.question].append(Labelled(row.model, row.question, row.trial))
    queues: dict[str, list[tuple[int, bytes, Labelled]]] = defaultdict(list)
    for (model, _), some in cells.items():
        answers = sorted(some, key=_draw_key)
        queues[model] += [(turn, _draw_key(one), one) for turn, one in enumerate(answers)]
    return {model: [one for _, _, one in sorted(queue) if one not in labels] for model, queue in queues.items()}


def _draw_key(at: Labelled) -> bytes:
    """A pseudorandom sort key that never changes."""
    return blake2b("\0".join((at.model, at.question, str(at.trial))).encode("utf-8", "surrogatepass")).digest()[:16]
