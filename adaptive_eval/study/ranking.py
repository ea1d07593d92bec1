"""The coins ranked with and without uncertainty, and two near ones told apart (paper, section 2.9, Table 1, Fig. 3).

The table has three rows: the ranks of the true means, those of Bayes@80, and those of Bayes@80 with a shared rank for
neighbours whose z is below 1.645. The paper prints one draw. The study makes many, and reports how often each row comes
out as printed, and the third row of those draws whose second row is the printed one.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from adaptive_eval.simulate.worlds import COIN_MEANS, coins
from adaptive_eval.study.experiment import (
    Criterion,
    Curve,
    DataTable,
    Experiment,
    OnStudyProgress,
    Panel,
    StudyFigure,
    StudyRequest,
    within,
)
from scorio.counts import Counts
from scorio.eval import bayes
from scorio.moments import FloatArray, IntArray
from scorio.rank import rank_scores, rank_with_uncertainty

TRIALS = 80
THRESHOLD = 1.645
TIED = (3, 4)
"""LLM4 and LLM5, whose true means are equal."""
PROMISE = 0.10
"""Allowed chance of telling apart two equal models: two sides of 5%."""
PRINTED: dict[str, tuple[int, ...]] = {
    "gold": (1, 2, 3, 5, 4, 6, 7, 7, 8, 9, 10),
    "without": (1, 3, 2, 5, 4, 6, 7, 8, 9, 10, 11),
    "with": (1, 2, 2, 3, 3, 4, 5, 5, 5, 6, 7),
}
"""The paper's Table 1: LLM11 to LLM1."""


class _Draw(NamedTuple):
    without: tuple[int, ...]
    grouped: tuple[int, ...]
    apart: bool
    """Whether the equal pair has a z of at least 1.645."""


def study_ranking(request: StudyRequest, on_progress: OnStudyProgress) -> Experiment:
    """Run the study of rankings; `request.replicates` matrices are drawn and ranked."""
    draws = _draws(request, on_progress)
    found = _rows()
    as_printed = [draw for draw in draws if draw.without == PRINTED["without"]]
    shown = Counter(draw.grouped for draw in as_printed).most_common(1)
    models = tuple(f"LLM{number}" for number in range(len(COIN_MEANS), 0, -1))
    columns = {"gold": found["gold"], "Bayes@80, expected": found["with"]}
    if as_printed:
        columns |= {"Bayes@80, drawn": as_printed[0].without, "with uncertainty": shown[0][0]}
    rows = tuple(zip(models, *columns.values(), strict=True))
    return Experiment(
        name="ranking",
        title="Ranks of the coins, with and without uncertainty (paper, section 2.9, Table 1)",
        settings=dict(request._asdict()),
        tables=(DataTable("ranking", "ranks", ("model", *columns), rows), _frequencies(draws)),
        figures=(_figure(draws),),
        criteria=tuple(_criteria(draws, found, shown)),
        notes=(
            "Ranks are without gaps. Expected: with uncertainty, of the counts that the true chances give on average. "
            "Drawn: a draw in the printed order, and the commonest ranks with uncertainty of all such draws.",
            f"{len(as_printed) / len(draws):.1%} of the draws have the printed order (LLM9 ahead of LLM10, LLM5 ahead "
            "of LLM4, all others in the true one).",
        ),
    )


def _draws(request: StudyRequest, on_progress: OnStudyProgress) -> list[_Draw]:
    chances = coins().p[..., 1]
    rng = np.random.default_rng(request.seed)
    draws = []
    for done in range(request.replicates):
        draws.append(_ranked(rng.binomial(TRIALS, chances)))
        if done % 50 == 49 or done + 1 == request.replicates:
            on_progress((done + 1) / request.replicates, f"{done + 1} of {request.replicates} draws")
    return draws


def _ranked(right: IntArray) -> _Draw:
    mu, sigma = bayes(Counts(np.stack([TRIALS - right, right], axis=-1), np.array([0.0, 1.0])))
    means, sds = np.asarray(mu), np.asarray(sigma)
    z = abs(means[TIED[0]] - means[TIED[1]]) / np.hypot(sds[TIED[0]], sds[TIED[1]])
    without = rank_scores(means, "dense")
    grouped = rank_with_uncertainty(means, sds, THRESHOLD).ranking
    return _Draw(_best_first(without), _best_first(grouped), bool(z >= THRESHOLD))


def _best_first(ranks: IntArray | FloatArray) -> tuple[int, ...]:
    return tuple(int(rank) for rank in ranks[::-1])


def _rows() -> dict[str, tuple[int, ...]]:
    """The rows of the true chances: ranks of the means, and the tiers of their expected counts."""
    chances = coins().p[..., 1]
    nu = np.stack([TRIALS * (1.0 - chances) + 1.0, TRIALS * chances + 1.0], axis=-1)
    total = nu.sum(axis=-1)
    variance = (nu.prod(axis=-1) / total**2 / (total + 1.0)).sum(axis=1) / chances.shape[1] ** 2
    tiers = rank_with_uncertainty((nu[..., 1] / total).mean(axis=1), np.sqrt(variance), THRESHOLD)
    return {"gold": _best_first(rank_scores(COIN_MEANS, "dense")), "with": _best_first(tiers.ranking)}


def _frequencies(draws: list[_Draw]) -> DataTable:
    counted = Counter(draw.grouped for draw in draws).most_common()
    rows = tuple((" ".join(map(str, ranks)), times / len(draws)) for ranks, times in counted)
    return DataTable("ranking_with_uncertainty", "third rows, LLM11 to LLM1", ("ranks", "share"), rows, shown=False)


def _figure(draws: list[_Draw]) -> StudyFigure:
    places = len(COIN_MEANS)
    curves = []
    for label, ranks in (
        ("without uncertainty", [draw.without for draw in draws]),
        ("with", [d.grouped for d in draws]),
    ):
        last = [max(one) for one in ranks]
        shares = np.bincount(last, minlength=places + 1)[1:] / len(ranks)
        curves.append(Curve.of(f"{label}, mean {np.mean(last):.1f}", range(1, places + 1), shares))
    return StudyFigure(
        "ranking", (Panel("different ranks among 11 coins", "ranks", "share of draws", tuple(curves), "bars"),)
    )


def _criteria(
    draws: list[_Draw], found: dict[str, tuple[int, ...]], shown: list[tuple[tuple[int, ...], int]]
) -> list[Criterion]:
    commonest = Counter(draw.grouped for draw in draws).most_common(1)[0]
    share = commonest[1] / len(draws)
    criteria = [
        _same("row 1, gold standard", found["gold"], PRINTED["gold"]),
        _same("row 3, of the expected counts", found["with"], PRINTED["with"]),
    ]
    if shown:
        criteria.append(_same("row 3, commonest where row 2 is as printed", shown[0][0], PRINTED["with"]))
    criteria.append(_same(f"row 3, commonest of all draws ({share:.1%} of them)", commonest[0], PRINTED["with"]))
    apart = float(np.mean([draw.apart for draw in draws]))
    slack = 2.0 * np.sqrt(PROMISE * (1.0 - PROMISE) / len(draws))
    what = "share of draws that tell LLM4 from LLM5, which are equal"
    criteria.append(Criterion(what, apart, f"<= {PROMISE:g} + 2 s.e.", bool(apart <= PROMISE + slack)))
    return criteria


def _same(what: str, found: tuple[int, ...], printed: tuple[int, ...]) -> Criterion:
    return Criterion(what, " ".join(map(str, found)), " ".join(map(str, printed)), found == printed)


WORSE, BETTER = 8, 9
PRINTED_Z = {80: (0.837, 1.14), 199: (0.947, 1.645), 285: (0.969, 1.96)}
"""The chance of the right order, and |z|, as the paper prints them."""
STEP, MOST = 5, 300


def study_separation(request: StudyRequest, on_progress: OnStudyProgress) -> Experiment:
    """Study how many trials give the right order of two models, in `request.replicates` pairs of matrices."""
    looks = sorted({1, *range(STEP, MOST + 1, STEP), *PRINTED_Z})
    right, z, signed = _measured(request, looks, on_progress)
    at = {n: place for place, n in enumerate(looks)}
    criteria = []
    for n, (chance, score) in PRINTED_Z.items():
        criteria.append(within(f"N = {n}: chance of the right order", float(right[at[n]]), chance, 0.03))
        criteria.append(within(f"N = {n}: mean |z|", float(z[at[n]]), score, 0.05))
    rows = tuple((n, float(right[i]), float(z[i]), float(signed[i])) for n, i in at.items())
    columns = ("trials", "right order", "mean |z|", "mean z")
    return Experiment(
        name="separation",
        title="Telling LLM9 (60.8%) from LLM10 (62.13%) (paper, section 2.9, Fig. 3)",
        settings=dict(request._asdict()),
        tables=(
            DataTable(
                "separation_printed", "where the paper prints it", columns, tuple(r for r in rows if r[0] in PRINTED_Z)
            ),
            DataTable("separation", "every N", columns, rows, shown=False),
        ),
        figures=(
            StudyFigure(
                "separation",
                (
                    Panel("LLM10 above LLM9", "trials N", "share of draws", (Curve.of("", looks, right),)),
                    Panel("z of the two", "trials N", "mean |z|", (Curve.of("", looks, z),)),
                ),
            ),
        ),
        criteria=tuple(criteria),
        notes=("|z| is averaged as it stands, so that it exceeds the mean of z where orders are still wrong.",),
    )


def _measured(
    request: StudyRequest, looks: list[int], on_progress: OnStudyProgress
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The chance of the right order (ties half), mean |z| and mean z at each look, each draw followed through all."""
    chances = coins().p[[WORSE, BETTER], :, 1]
    questions = chances.shape[1]
    rng = np.random.default_rng(request.seed)
    right = np.zeros((request.replicates, *chances.shape), dtype=np.int64)
    found, before = [], 0
    for n in looks:
        right += rng.binomial(n - before, chances, right.shape)
        before = n
        nu = right + 1.0
        variance = (nu * (n + 2.0 - nu)).sum(axis=-1) / ((n + 2.0) ** 2 * (n + 3.0) * questions**2)
        difference = np.diff(nu.sum(axis=-1), axis=-1)[:, 0] / ((n + 2.0) * questions)
        z = difference / np.sqrt(variance.sum(axis=-1))
        found.append((np.mean(z > 0) + np.mean(z == 0) / 2.0, np.abs(z).mean(), z.mean()))
        on_progress(n / looks[-1], f"N = {n}")
    chance, size, signed = np.array(found).T
    return chance, size, signed
