"""Value of outcomes of an older model as a prior for the newer one (paper, section 2.8, Fig. 2).

There are eight models. The i-th answers questions rightly with probabilities drawn from Beta(i + 3, 12 - i), scaled to
the printed means; its update draws new ones from Beta(i + 3 + s, 12 - i + s') with s, s' = +-1. D trials of each
question by the original are the prior outcomes R0 of its update, which has N trials. All models then have D + N trials
a question, so they rank by their total of right answers: Bayes@N with R0 (paper, appendix A).
"""

import numpy as np

from adaptive_eval.simulate.worlds import with_mean
from adaptive_eval.study.experiment import (
    Criterion,
    Curve,
    DataTable,
    Experiment,
    OnStudyProgress,
    Panel,
    StudyFigure,
    StudyRequest,
    at_least,
    at_most,
    within,
)
from scorio.moments import FloatArray, IntArray
from scorio.rank.order import pair_signs, tau_b

MEANS = (0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487)
QUESTIONS = 30
DEPTHS = (0, 1, 2, 4, 8, 16)
TRIALS = 40
SMALL, LARGE = 3, TRIALS
"""Numbers of trials at which a shallow prior helps, and at which a deep one harms."""
AT_A_TIME = 1000


def original_chances(seed: int) -> FloatArray:
    """(L, M): chances of the original models, with the printed means."""
    rng = np.random.default_rng([seed, 0])
    index = np.arange(1, len(MEANS) + 1)[:, None]
    drawn = rng.beta(index + 3.0, 12.0 - index, (len(MEANS), QUESTIONS))
    return np.array([with_mean(row, mean) for row, mean in zip(drawn, MEANS, strict=True)])


def updated_chances(replicates: int, rng: np.random.Generator) -> FloatArray:
    """(B, L, M): chances of updates of all models."""
    index = np.arange(1.0, len(MEANS) + 1)
    signs = rng.choice([-1.0, 1.0], (2, replicates, len(MEANS)))
    first, second = index + 3.0 + signs[0], 12.0 - index + signs[1]
    return rng.beta(first[..., None], second[..., None], (replicates, len(MEANS), QUESTIONS))


def right_answers(chances: FloatArray, trials: int, rng: np.random.Generator) -> IntArray:
    """Numbers of right answers (B, N, L) to all questions in the first 1, 2, ..., N trials."""
    drawn = [(rng.random(chances.shape, dtype=np.float32) < chances).sum(axis=-1) for _ in range(trials)]
    return np.cumsum(np.stack(drawn, axis=1), axis=1)


def study_priors(request: StudyRequest, on_progress: OnStudyProgress) -> Experiment:
    """Run the study of priors; `request.replicates` updates of all models are drawn."""
    original = original_chances(request.seed)
    rng = np.random.default_rng([request.seed, 1])
    agreement, total = [], np.zeros((len(DEPTHS), TRIALS))
    for done in range(0, request.replicates, AT_A_TIME):
        some = min(AT_A_TIME, request.replicates - done)
        agreed, sums = _chunk(original, some, rng)
        agreement.append(agreed)
        total += sums
        on_progress((done + some) / request.replicates, f"{done + some} of {request.replicates} updates")
    orders, tau = np.concatenate(agreement), total / request.replicates
    return Experiment(
        name="priors",
        title="Prior outcomes of an older model (paper, section 2.8, Fig. 2)",
        settings=dict(request._asdict()),
        tables=(_table_at_looks(tau), _all(tau), _histogram(orders)),
        figures=(_figure(orders, tau),),
        criteria=tuple(_criteria(orders, tau)),
        notes=("The D trials of the original are drawn anew for each update, as its N trials are.",),
    )


def _chunk(original: FloatArray, replicates: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """(B,): tau of the true orders before and after; (D, N): sums of tau-b of the estimates with the truth."""
    updated = updated_chances(replicates, rng)
    truth = pair_signs(updated.mean(axis=-1))
    before = right_answers(np.broadcast_to(original, updated.shape), max(DEPTHS), rng)
    found = right_answers(updated, TRIALS, rng)
    sums = []
    for depth in DEPTHS:
        totals = found if depth == 0 else found + before[:, depth - 1 : depth]
        sums.append(np.nan_to_num(tau_b(pair_signs(totals.astype(float)), truth[:, None])).sum(axis=0))
    return tau_b(pair_signs(np.array(MEANS)), truth), np.array(sums)


def _criteria(orders: FloatArray, tau: FloatArray) -> list[Criterion]:
    changed = float(np.mean(orders < 1.0))
    gain = tau - tau[0]
    criteria = [
        within("mean tau of the true orders before and after an update", float(orders.mean()), 0.88, 0.01),
        within("share of updates that change the order", changed, 0.86, 0.03),
    ]
    for place, depth in enumerate(DEPTHS[1:], start=1):
        if depth <= 4:
            what = f"D = {depth}: tau more than without a prior, at N = 1 to {SMALL}, at least"
            criteria.append(at_least(what, float(gain[place, :SMALL].min()), 0.0))
        else:
            what = f"D = {depth}: tau more than without a prior, at N = {LARGE}"
            criteria.append(at_most(what, float(gain[place, LARGE - 1]), 0.0))
    return criteria


def _table_at_looks(tau: FloatArray) -> DataTable:
    looks = (1, 2, 3, 5, 10, 20, TRIALS)
    rows = tuple((depth, *(float(tau[place, n - 1]) for n in looks)) for place, depth in enumerate(DEPTHS))
    return DataTable("priors_at_looks", "mean tau-b with the truth", ("D", *(f"N = {n}" for n in looks)), rows)


def _all(tau: FloatArray) -> DataTable:
    rows = tuple(
        (depth, n, float(tau[place, n - 1]), float(tau[place, n - 1] - tau[0, n - 1]))
        for place, depth in enumerate(DEPTHS)
        for n in range(1, TRIALS + 1)
    )
    return DataTable("priors", "every curve", ("D", "trials", "tau_b", "gain"), rows, shown=False)


def _shares(orders: FloatArray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    values, counts = np.unique(np.round(orders, 6), return_counts=True)
    return tuple(values.tolist()), tuple((counts / len(orders)).tolist())


def _histogram(orders: FloatArray) -> DataTable:
    rows = tuple(zip(*_shares(orders), strict=True))
    return DataTable("priors_orders", "orders before and after", ("tau", "share of updates"), rows, shown=False)


def _figure(orders: FloatArray, tau: FloatArray) -> StudyFigure:
    trials = range(1, TRIALS + 1)
    names = ("uniform prior", *(f"D = {depth}" for depth in DEPTHS[1:]))
    curves = tuple(Curve.of(name, trials, row) for name, row in zip(names, tau, strict=True))
    gains = tuple(Curve.of(name, trials, row - tau[0]) for name, row in list(zip(names, tau, strict=True))[1:])
    return StudyFigure(
        "priors",
        (
            Panel("true orders, before and after", "tau", "share of updates", (Curve("", *_shares(orders)),), "bars"),
            Panel("agreement with the truth", "trials N", "mean tau-b", curves),
            Panel("against the uniform prior", "trials N", "mean tau-b, difference", gains),
        ),
    )
