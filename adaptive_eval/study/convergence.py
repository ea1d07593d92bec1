"""How many trials recorded rankings take to settle (paper, sections 3.1 and 3.3, appendices F and G).

The gold ranking is that of all N trials. Over bootstraps of whole trials the study gives curves of tau-b, and
convergence@n: the smallest n <= N - 1 from which on the ranking equals the gold one. A replicate without such an n is
reported as not converging, never as N. Panels of random subsets of models show the effect of their number: 50 subsets
of 5, 20 of 10, 20 of 15 and all of 20, or as many as there are.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import comb
from pathlib import Path
from typing import NamedTuple

import numpy as np

import scorio.eval
from adaptive_eval.base.errors import ConfigError
from adaptive_eval.exchange.recording import read_recording, recording_of_run
from adaptive_eval.study.experiment import (
    Cell,
    Curve,
    DataTable,
    Experiment,
    OnStudyProgress,
    Panel,
    StudyFigure,
    part_of_progress,
)
from scorio.convergence import (
    BAYES,
    NEVER,
    Convergence,
    Metric,
    Study,
    TauCurve,
    convergence_at_n,
    convergence_of_subsets,
    tau_curve,
)
from scorio.counts import Counts
from scorio.moments import FloatArray, IntArray
from scorio.rank import rank_scores, rank_with_uncertainty

DRAWS = (2, 4, 8)
PANELS = {5: 50, 10: 20, 15: 20, 20: 1}
"""Number of subsets for each number of models."""
LOOKS = (1, 10, 20, 40, 80)
PAPERS_OWN = (
    "The paper's own figures for its four data sets cannot be reproduced without their outcomes, which it does not "
    "print: all figures here are for the data given."
)

MOST_TRIALS = 80
"""Default trials of each question if more were recorded, as in the paper."""


class ConvergenceRequest(NamedTuple):
    """The data to resample, and how often."""

    data: Sequence[Path]
    replicates: int = 100_000
    """Replicates for convergence@n; curves of tau and panels use a tenth of them."""
    trials: int | None = None
    top: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeTensor:
    """Recorded outcomes with equally many trials of every question: L models, M questions, N trials of each."""

    name: str
    models: tuple[str, ...]
    outcomes: IntArray
    """(L, M, N)"""
    weights: FloatArray

    @property
    def binary(self) -> bool:
        """Whether answers are only right or wrong."""
        return self.weights.size == 2

    def best(self, most: int | None) -> "OutcomeTensor":
        """The models of highest mean score, best first."""
        scores = self.weights[self.outcomes].mean(axis=(1, 2))
        chosen = np.argsort(-scores, kind="stable")[:most]
        models = tuple(self.models[model] for model in chosen)
        return OutcomeTensor(self.name, models, self.outcomes[chosen], self.weights)


class _MetricConvergence(NamedTuple):
    """Convergence of one metric on one data set."""

    metric: str
    at: Convergence
    curve: TauCurve


class _DataSet(NamedTuple):
    tensor: OutcomeTensor
    settled: tuple[_MetricConvergence, ...]
    subsets: dict[tuple[int, ...], Convergence]
    """Convergence@n of subsets of the models."""


def study_convergence(request: ConvergenceRequest, on_progress: OnStudyProgress) -> Experiment:
    """Run the study on each data set."""
    sets = []
    for number, path in enumerate(request.data):
        rng = np.random.default_rng([request.seed, number])
        tensor = read_tensor(path, request.trials, rng).best(request.top)
        here = part_of_progress(on_progress, number / len(request.data), (number + 1) / len(request.data))
        sets.append(_study_data(tensor, request, here))
    figures = [figure for one in sets for figure in _figures(one)]
    settings: dict[str, Cell] = {"replicates": request.replicates, "seed": request.seed}
    for one in sets:
        models, questions, trials = one.tensor.outcomes.shape
        settings[one.tensor.name] = f"{models} models x {questions} questions x {trials} trials"
    return Experiment(
        name="convergence",
        title="How many trials the ranking takes to settle (paper, sections 3.1 and 3.3, appendices F and G)",
        settings=settings,
        tables=(
            *map(_summary, sets),
            _ranks(sets),
            _panels(sets),
            _subset_table(sets),
            _distribution(sets),
            _curves(sets),
            _worst(sets),
        ),
        figures=tuple(figures),
        notes=tuple(_notes(sets)),
    )


def choose_metrics(tensor: OutcomeTensor) -> dict[str, Metric]:
    """Bayes@N, and for answers that are right or wrong the metrics of fewer draws than trials."""
    chosen = {"Bayes@N": BAYES}
    ks = [k for k in DRAWS if k < tensor.outcomes.shape[-1]] if tensor.binary else []
    chosen |= {f"Pass@{k}": Metric.of(scorio.eval.pass_at_k, k=k) for k in ks}
    if 4 in ks:
        chosen["naive Pass^4"] = Metric.of(scorio.eval.naive_pass_hat_k, k=4)
        chosen["G-Pass@4, tau 0.5"] = Metric.of(scorio.eval.g_pass_at_k_tau, k=4, tau=0.5)
        chosen["mG-Pass@4"] = Metric.of(scorio.eval.mg_pass_at_k, k=4)
    return chosen


def _study_data(tensor: OutcomeTensor, request: ConvergenceRequest, on_progress: OnStudyProgress) -> _DataSet:
    gold = Study.of(tensor.outcomes, w=tensor.weights)
    if len(set(gold.gold.tolist())) == 1:
        raise ConfigError(f"{tensor.name}: all models have the same score, so that there is no ranking to converge to")
    settled, chosen = [], choose_metrics(tensor)
    for place, (name, metric) in enumerate(chosen.items()):
        here = part_of_progress(on_progress, 0.8 * place / len(chosen), 0.8 * (place + 1) / len(chosen))
        settled.append(_measure(name, Study.of(tensor.outcomes, w=tensor.weights, metric=metric), request, here))
    subsets = tuple(draw_subsets(len(tensor.models), np.random.default_rng([request.seed, 3])))
    found = convergence_of_subsets(
        gold,
        subsets,
        _fewer(request),
        np.random.default_rng([request.seed, 4]),
        progress=lambda done, total: on_progress(0.8 + 0.2 * done / total, f"{tensor.name}: panels of subsets"),
    )
    return _DataSet(tensor, tuple(settled), dict(zip(subsets, found, strict=True)))


def _measure(name: str, study: Study, request: ConvergenceRequest, on_progress: OnStudyProgress) -> _MetricConvergence:
    at = convergence_at_n(
        study,
        request.replicates,
        np.random.default_rng([request.seed, 1]),
        progress=lambda done, total: on_progress(done / total, name),
    )
    return _MetricConvergence(name, at, tau_curve(study, _fewer(request), np.random.default_rng([request.seed, 2])))


def _fewer(request: ConvergenceRequest) -> int:
    return max(1, request.replicates // 10)


def draw_subsets(models: int, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    """Random subsets of each size, without repeats: as many as the panel has, or as exist."""
    for size, wanted in PANELS.items():
        if size > models:
            return
        seen: set[tuple[int, ...]] = set()
        while len(seen) < min(wanted, comb(models, size)):
            seen.add(tuple(sorted(rng.choice(models, size, replace=False).tolist())))
        yield from sorted(seen)


def _mean(at: Convergence) -> float | None:
    """Mean over the replicates that converge; None if none does."""
    return None if at.never == 1.0 else at.mean


def _summary(one: _DataSet) -> DataTable:
    rows = []
    looks = sorted({n for n in LOOKS if n < one.tensor.outcomes.shape[-1]} | {one.tensor.outcomes.shape[-1]})
    for metric, at, curve in one.settled:
        tau = dict(zip(curve.trials.tolist(), curve.tau.tolist(), strict=True))
        worst = "no convergence" if at.worst.converged_at == NEVER else at.worst.converged_at
        rows.append((metric, *(tau.get(n) for n in looks), _mean(at), at.never, worst))
    columns = ("metric", *(f"tau {n}" for n in looks), "mean n", "never", "worst")
    title = f"{one.tensor.name}: mean tau-b after N trials; convergence@n where there is one, and how often never"
    return DataTable(f"convergence_{_file_name(one.tensor.name)}", title, columns, tuple(rows))


def _ranks(sets: Sequence[_DataSet]) -> DataTable:
    """The paper's Table 2: ranks with and without uncertainty."""
    rows: list[tuple[Cell, ...]] = []
    for one in sets:
        estimate = scorio.eval.bayes(Counts.from_tensor(one.tensor.outcomes, one.tensor.weights))
        mu, sigma = np.asarray(estimate.mu), np.asarray(estimate.sigma)
        tiers = rank_with_uncertainty(mu, sigma)
        without = rank_scores(mu)
        rows += [
            (
                one.tensor.name,
                one.tensor.models[m],
                int(tiers.ranking[m]),
                int(without[m]),
                float(mu[m]),
                float(sigma[m]),
            )
            for m in tiers.order.tolist()
        ]
    columns = ("data", "model", "rank with uncertainty", "rank", "Bayes@N", "sigma")
    return DataTable("convergence_ranks", "ranks by all trials", columns, tuple(rows), shown=False)


def _panels(sets: Sequence[_DataSet]) -> DataTable:
    rows = []
    for one in sets:
        for size in PANELS:
            found = [at for models, at in one.subsets.items() if len(models) == size]
            if found:
                means = [mean for at in found if (mean := _mean(at)) is not None]
                never = float(np.mean([at.never for at in found]))
                some = sum(at.never > 0.0 for at in found)
                rows.append((one.tensor.name, size, len(found), float(np.mean(means)) if means else None, never, some))
    columns = ("data", "models", "subsets", "mean n", "never", "some never")
    title = "Bayes@N by the number of models: mean convergence@n, and subsets with replicates that never converge"
    return DataTable("convergence_panels", title, columns, tuple(rows))


def _subset_table(sets: Sequence[_DataSet]) -> DataTable:
    """The paper's Tables 8 to 10: convergence@n of every subset."""
    rows = tuple(
        (one.tensor.name, len(models), ", ".join(one.tensor.models[m] for m in models), _mean(at), at.never)
        for one in sets
        for models, at in one.subsets.items()
    )
    columns = ("data", "models", "subset", "mean n", "never")
    return DataTable("convergence_subsets", "Bayes@N, subset by subset", columns, rows, shown=False)


def _distribution(sets: Sequence[_DataSet]) -> DataTable:
    rows = tuple(
        (one.tensor.name, metric, int(n), float(p), float(c))
        for one in sets
        for metric, at, _ in one.settled
        for n, p, c in zip(at.steps, at.pmf, at.cdf, strict=True)
    )
    columns = ("data", "metric", "n", "P(convergence@n = n)", "P(convergence@n <= n)")
    return DataTable("convergence_distribution", "convergence@n", columns, rows, shown=False)


def _curves(sets: Sequence[_DataSet]) -> DataTable:
    rows = tuple(
        (one.tensor.name, metric, int(n), float(tau))
        for one in sets
        for metric, _, curve in one.settled
        for n, tau in zip(curve.trials, curve.tau, strict=True)
    )
    columns = ("data", "metric", "trials", "tau_b")
    return DataTable("convergence_tau", "every curve of tau", columns, rows, shown=False)


def _worst(sets: Sequence[_DataSet]) -> DataTable:
    """Each model's ranks by Bayes@N in the replicate that takes longest."""
    rows = tuple(
        (one.tensor.name, model, int(n), int(rank))
        for one in sets
        for place, model in enumerate(one.tensor.models)
        for n, rank in zip(one.settled[0].at.worst.trials, one.settled[0].at.worst.ranks[:, place], strict=True)
    )
    columns = ("data", "model", "trials", "rank")
    return DataTable("convergence_worst", "the slowest replicate of Bayes@N", columns, rows, shown=False)


def _figures(one: _DataSet) -> Iterator[StudyFigure]:
    name, settled = one.tensor.name, one.settled
    taus = tuple(Curve.of(each.metric, each.curve.trials, each.curve.tau) for each in settled)
    pmf = tuple(Curve.of(each.metric, each.at.steps, each.at.pmf) for each in settled)
    cdf = tuple(Curve.of(each.metric, each.at.steps, each.at.cdf) for each in settled)
    worst, none = settled[0].at.worst, ": no replicate converges" if all(one.at.never == 1.0 for one in settled) else ""
    ends = "no convergence" if worst.converged_at == NEVER else f"convergence at {worst.converged_at}"
    paths = tuple(Curve.of(*path) for path in zip(one.tensor.models, repeat(worst.trials), worst.ranks.T))
    yield StudyFigure(
        f"convergence_{_file_name(name)}",
        (
            Panel(f"{name}: agreement with the ranking of all trials", "trials N", "mean tau-b", taus),
            Panel(f"convergence@n{none}", "n", "share of replicates", pmf, "steps"),
            Panel("convergence@n, cumulative; what is missing at the end never converges", "n", "share", cdf, "steps"),
            Panel(f"the slowest replicate of Bayes@N: {ends}", "trials N", "rank", paths, "steps"),
        ),
    )
    for size in PANELS:
        some = [(models, at) for models, at in one.subsets.items() if len(models) == size]
        rows = tuple(
            Curve.of(f"{number}: {at.never:.0%} never", models, repeat(_mean(at) or math.nan, size))
            for number, (models, at) in enumerate(some, start=1)
        )
        if rows:
            title = f"{name}: {len(rows)} subset{'s' * (len(rows) > 1)} of {size} models, Bayes@N"
            panel = Panel(title, "", "mean convergence@n", rows, "cells", one.tensor.models)
            yield StudyFigure(f"convergence_{size}_models_{_file_name(name)}", (panel,))


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)


def _notes(sets: Sequence[_DataSet]) -> Iterator[str]:
    for one in sets:
        never = one.settled[0].at.never
        if never > 0.0:
            yield f"{one.tensor.name}: {never:.1%} of the replicates do not converge by Bayes@N, and are in no mean."
    yield PAPERS_OWN


def read_tensor(path: Path, trials: int | None, rng: np.random.Generator) -> OutcomeTensor:
    """Read an .npz file or a run; trials in their order, or drawn without replacement if only counts are known."""
    if not path.exists():
        raise ConfigError(f"{path} is neither a file nor a run; name an .npz file or a run directory")
    recording = recording_of_run(path) if path.is_dir() else read_recording(path)
    if recording.weighing is not None:
        raise ConfigError(
            f"{path} has several benchmarks, and these studies need questions of equal weight; study a run of one"
        )
    counts = recording.counts
    fewest = int(counts.sum(axis=-1).min())
    wanted = min(fewest, MOST_TRIALS) if trials is None else trials
    if wanted < 2:
        raise ConfigError(f"{path} must have at least 2 trials of every question by every model, got {fewest} of one")
    if wanted > fewest:
        raise ConfigError(f"--trials must be at most {fewest}, as many as {path} has of every question, got {wanted}")
    if len(recording.models) < 2:
        raise ConfigError(f"{path} must have at least 2 models to rank, but only has {recording.models[0]!r}")
    tensor = _drawn(counts, wanted, rng) if recording.outcomes is None else _first(recording.outcomes, wanted)
    weights = recording.weights if recording.weights is not None else _default_weights(counts.shape[-1], path)
    return OutcomeTensor(path.name if path.is_dir() else path.stem, recording.models, tensor, weights)


def _default_weights(categories: int, path: Path) -> FloatArray:
    if categories > 2:
        raise ConfigError(f"{path} has {categories} categories without weights; import it as a run")
    return np.array([0.0, 1.0])


def _first(outcomes: IntArray, trials: int) -> IntArray:
    """The first existing trials of each question."""
    order = np.argsort(outcomes < 0, axis=-1, kind="stable")[..., :trials]
    return np.take_along_axis(outcomes, order, axis=-1).astype(np.int64)


def _drawn(counts: IntArray, trials: int, rng: np.random.Generator) -> IntArray:
    """Trials in random order, without replacement."""
    drawn = np.empty((*counts.shape[:2], trials), dtype=np.int64)
    for cell in np.ndindex(*counts.shape[:2]):
        drawn[cell] = rng.permutation(np.repeat(np.arange(counts.shape[-1]), counts[cell]))[:trials]
    return drawn
