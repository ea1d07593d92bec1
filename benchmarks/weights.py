"""Questions weighted by everything known so far, against weights from the other models alone, at one boundary.

A model's own outcomes may say which questions are worth more trials, if the score allows for it: round t is worth
X_t = mean_q [ m_q + sum_i (y_i - m_q) / e_q ], with predictions m_q and expected numbers of trials e_q from earlier
rounds only, and systematic draws of expectation e_q; the score is the precision-weighted mean of the X_t, its variance
comes from squared residuals. This plays both side by side, with whole arrays and code of its own (not the
controller's), under the boundaries of the rule `optimal`.

Beside them stands the controller itself under that rule, which has the average, and further deviating trials in its
variances (`EVENTS` in `scorio/sinf/prior.py`), and the controller without these: so that what a score gains is not
what a smaller variance gains. The script's average is also judged by the controller's variance, which shows what else
the two differ in. All play the same worlds: answers are drawn anew from the recorded shares, and not from the recorded
answers without replacement, as in other tables. "Half even" has half of each model's trials on all questions alike.

    python benchmarks/weights.py [--quick] [--runs 100] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scenarios import Scenario, recorded, simulated
from stacked import replay_stacked
from tables import Check, add_data, arguments, conclude, markdown

from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.optimal import Optimal
from scorio.sinf import prior
from scorio.sinf.optimal import Stopping, optimal_stopping

HORIZON, OPENING = 80, 4
EVEN, HALF_EVEN, LEAST = 0.10, 0.50, 0.15
"""What own weights keep of equal ones, and the least that a question gets."""
OTHERS_EVEN = 0.25
WORTHS = (1.6, 2.0, 2.6)
SPACING = (0.0, 2.0 / HORIZON, 0.5 / HORIZON)
"""As of rounds of one trial a question."""
GOAL = 0.90
"""Where the weights gain less, the plain average stays the score."""
HEADER = (
    "set", "score and weights", "worth", "cost", "called", "misordered", "tie parted", "bias", "sd of errors",
)  # fmt: skip
FloatArray = NDArray[np.float64]


@dataclass
class Play:
    """Runs (R) of models (L) on questions (M) side by side, round by round."""

    p: FloatArray
    runs: int
    own: bool
    """Weights from everything known; else from the other models, and the plain average."""
    rng: np.random.Generator
    size: float = 1.0
    """Trials a question of a round; below 1 there is no opening, and the weights are those of everything known."""
    even: float = EVEN
    """What own weights keep of equal ones."""
    right: FloatArray = field(init=False)
    trials: FloatArray = field(init=False)
    rounds: FloatArray = field(init=False)
    weight: FloatArray = field(init=False)
    total: FloatArray = field(init=False)
    squares: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        models, questions = self.p.shape
        shape = (self.runs, models, questions)
        if self.size < 1.0:
            self.right, self.trials = np.zeros(shape), np.zeros(shape)
            self.rounds, self.weight, self.total, self.squares = (np.zeros(shape[:2]) for _ in range(4))
            self.ask(np.ones(shape[:2], dtype=bool))
            return
        self.right = self.rng.binomial(OPENING, self.p, size=shape).astype(float)
        self.trials = np.full(shape, float(OPENING))
        self.rounds = np.full((self.runs, models), float(OPENING))
        wrong = OPENING - self.right
        first = ((self.right * wrong + 0.25) / (OPENING**2 * (OPENING - 1))).sum(axis=2) / questions**2
        self.weight = np.full((self.runs, models), 1.0 / float(first.mean()))
        self.total = self.weight * (self.right / OPENING).mean(axis=2)
        self.squares = self.weight**2 * first

    def estimates(self) -> tuple[FloatArray, FloatArray]:
        """Scores and variances (R, L)."""
        if self.own:
            return self.total / self.weight, self.squares / self.weight**2
        share, n = self.right / self.trials, self.trials
        mean = share.mean(axis=2, keepdims=True)
        up, down = self.right + 0.6 * mean, n - self.right + 0.6 * (1.0 - mean)
        one = up * down / (up + down) / (up + down + 1.0)
        return mean[:, :, 0], (one / n).sum(axis=2) / n.shape[2] ** 2

    def ask(self, going: NDArray[np.bool_]) -> None:
        """One more trial a question, in the mean, of these models (R, L)."""
        mean = self._predicted()
        spread = np.sqrt(mean * (1.0 - mean))
        if self.own:
            expected = (1.0 - self.even) * spread / spread.mean(axis=2, keepdims=True) + self.even
            expected = np.maximum(expected, LEAST)
            expected *= self.size / expected.mean(axis=2, keepdims=True)
        else:
            expected = self._missing()
        upper = np.cumsum(expected, axis=2)
        start = self.rng.random((*going.shape, 1))
        drawn = np.floor(upper + start) - np.floor(upper - expected + start)
        drawn *= going[:, :, None]
        right = self.rng.binomial(drawn.astype(np.int64), self.p).astype(float)
        if self.own:
            self._weigh_in(mean, expected, drawn, right, going)
        self.right += right
        self.trials += drawn
        self.rounds += self.size * going

    def _predicted(self) -> FloatArray:
        """What is expected of each question: the model's own outcomes, drawn a trial's worth to those of the others."""
        others, asked = (one.sum(axis=1, keepdims=True) - one for one in (self.right, self.trials))
        prior = np.clip((others + 0.5) / (asked + 1.0), 0.03, 0.97)
        return np.asarray((self.right + prior) / (self.trials + 1.0))

    def _missing(self) -> FloatArray:
        """What brings the trials nearest to the weights that the other models' variances give."""
        share = (self.right + 0.5) / (self.trials + 1.0)
        variance = share * (1.0 - share)
        weights = np.sqrt(variance.sum(axis=1, keepdims=True) - variance)
        weights = (1.0 - OTHERS_EVEN) * weights / weights.mean(axis=2, keepdims=True) + OTHERS_EVEN
        missing = np.maximum(weights * (self.rounds[:, :, None] + 1.0) - self.trials, 0.0)
        return np.asarray(missing * missing.shape[2] / missing.sum(axis=2, keepdims=True))

    def _weigh_in(
        self, mean: FloatArray, expected: FloatArray, drawn: FloatArray, right: FloatArray, going: NDArray[np.bool_]
    ) -> None:
        worth = (mean + (right - drawn * mean) / expected).mean(axis=2)
        one, left = mean * (1.0 - mean), expected - np.floor(expected)
        unknown = one / (self.trials + 2.0) * left * (1.0 - left) / expected**2
        precision = np.where(going, 1.0 / (one / expected + unknown).sum(axis=2), 0.0) * mean.shape[2] ** 2
        residual = (right * (1.0 - mean) ** 2 + (drawn - right) * mean**2) / expected**2
        self.total += precision * worth
        self.weight += precision
        self.squares += precision**2 * residual.sum(axis=2) / mean.shape[2] ** 2


@dataclass
class AsControlled(Play):
    """The plain average with the controller's variance."""

    def estimates(self) -> tuple[FloatArray, FloatArray]:
        counts = np.stack([self.trials - self.right, self.right], axis=-1).astype(np.int64)
        cells, horizon = counts.reshape(-1, *counts.shape[2:]), np.array(HORIZON)
        found = estimate(cells, np.array([0.0, 1.0]), "self", horizon, bayes=False)
        return found.score.reshape(self.rounds.shape), found.var.reshape(self.rounds.shape)


@dataclass(frozen=True)
class Ranked:
    """How the runs ended."""

    cost: float
    called: float
    misordered: float
    parted: float
    bias: float
    sd: float


class Verdicts:
    """Who is called and given up for good, pair by pair (R, L, L)."""

    def __init__(self, runs: int, models: int) -> None:
        self.call = np.zeros((runs, models, models), dtype=np.int8)
        self._gone = np.zeros_like(self.call, dtype=bool)

    def look(self, play: Play, rule: Stopping, horizon: float) -> NDArray[np.bool_]:
        """Judge all pairs, with so many trials a question at the horizon; the models (R, L) that go on."""
        score, variance = play.estimates()
        both = variance[:, :, None] + variance[:, None, :]
        z = (score[:, :, None] - score[:, None, :]) / np.sqrt(both)
        held = (variance * play.rounds)[:, :, None] + (variance * play.rounds)[:, None, :]
        t = np.clip(held / horizon / both, 1e-9, 1.0)
        free = (self.call == 0) & ~self._gone
        self.call = np.where(free & (np.abs(z) >= rule.boundary(t)), np.sign(z), self.call).astype(np.int8)
        self._gone |= (self.call == 0) & (rule.gives_up(z, t) | (t >= 1.0 - 1e-9))
        at, upper, lower = neighbours(score)
        undecided = (self.call[at, upper, lower] == 0) & ~self._gone[at, upper, lower]
        going = np.zeros(score.shape, dtype=bool)
        for member in (upper, lower):
            np.logical_or.at(going, (np.broadcast_to(at, member.shape)[undecided], member[undecided]), True)
        return np.asarray(going & (play.rounds < horizon - 1e-9))


def neighbours(score: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the runs, and of the upper and the lower model of each pair of neighbours."""
    order = np.argsort(-score, axis=1, kind="stable")
    return np.arange(len(score))[:, None], order[:, :-1], order[:, 1:]


def rank(play: Play, rule: Stopping) -> Ranked:
    """Play until no neighbours are open."""
    verdicts = Verdicts(*play.rounds.shape)
    while (going := verdicts.look(play, rule, HORIZON)).any():
        play.ask(going)
    score, variance = play.estimates()
    at, upper, lower = neighbours(score)
    apart, truth = verdicts.call[at, upper, lower] == 1, np.round(play.p.mean(axis=1), 12)
    ahead, errors = truth[upper] - truth[lower], score - play.p.mean(axis=1)
    return Ranked(
        cost=float(play.rounds.mean() / HORIZON),
        called=float(apart.sum(axis=1).mean()),
        misordered=float((apart & (ahead < 0.0)).any(axis=1).mean()),
        parted=float((apart & (ahead == 0.0)).any(axis=1).mean()),
        bias=float(100.0 * np.abs(errors.mean(axis=0)).max()),
        sd=float((errors / np.sqrt(variance)).std()),
    )


def controlled(scenario: Scenario, runs: int, worth: float, events: float) -> Ranked:
    """The controller's runs, with so many further deviating trials in its variances."""
    scenario = replace(scenario, counts=None)
    with patch.object(prior, "EVENTS", events):
        ended = replay_stacked(scenario, "controller", runs, rule=Optimal(0.95, 4.0 / HORIZON, worth, *SPACING))
    return Ranked(
        cost=ended.cost,
        called=float(ended.called.mean()),
        misordered=float(ended.misordered.mean()),
        parted=float(ended.parted.mean()),
        bias=ended.bias,
        sd=float(ended.standardised.std()),
    )


def played(
    scenario: Scenario, runs: int, worth: float, *, own: bool, kind: type[Play] = Play, even: float = EVEN
) -> Ranked:
    """Those of this script."""
    rule = optimal_stopping(0.1, 0.0499999, worth, *SPACING)
    return rank(kind(scenario.world.p @ scenario.world.w, runs, own, np.random.default_rng(7), even=even), rule)


CONTROLLER, BARE = "controller, average", "controller without EVENTS"
OWN, OWN_EVEN = "by everything known", "by everything known, half even"
WAYS: Mapping[str, Callable[[Scenario, int, float], Ranked]] = {
    CONTROLLER: partial(controlled, events=prior.EVENTS),
    BARE: partial(controlled, events=0.0),
    "average, the controller's variance": partial(played, own=False, kind=AsControlled),
    "average": partial(played, own=False),
    OWN: partial(played, own=True),
    OWN_EVEN: partial(played, own=True, even=HALF_EVEN),
}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    add_data(parser)
    options = parser.parse_args()
    runs = 20 if options.quick else options.runs
    sets = [simulated("coins")] + ([recorded(options.data, "aime2024")] if options.data.exists() else [])
    rows: list[tuple[object, ...]] = []
    ratios: dict[tuple[str, str], list[float]] = {
        (own, way): [] for way in (CONTROLLER, BARE) for own in (OWN, OWN_EVEN)
    }
    for scenario in sets:
        points: dict[str, FloatArray] = {}
        for way, play in WAYS.items():
            ended = [play(scenario, runs, worth) for worth in WORTHS]
            points[way] = np.array([(one.called, one.cost) for one in ended])
            for worth, one in zip(WORTHS, ended, strict=True):
                figures = (one.misordered, one.parted, f"{one.bias:.2f}", one.sd)
                rows.append((scenario.name, way, f"{worth:g}", one.cost, f"{one.called:.2f}", *figures))
                print(*rows[-1], flush=True)
        for (own, way), found in ratios.items():
            found.append(at_equal_calls(points[own], points[way]))
    checks = []
    for (own, way), found in ratios.items():
        said = f"cost of as many calls, {own}, over {way}"
        checks += [
            Check(f"{scenario.name}: {said}", round(ratio, 3), "reported", None)
            for scenario, ratio in zip(sets, found, strict=True)
        ]
        mean = float(np.mean(found))
        goal = (f"<= {GOAL}", mean <= GOAL) if way == CONTROLLER else ("reported", None)
        checks.append(Check(f"mean: {said}", round(mean, 3), *goal))
    about = "\n\n".join(__doc__.split("\n\n")[1:3])
    conclude(options, "Weights from everything known so far", about, f"{runs} seeded runs a row",
             markdown(HEADER, rows), checks)  # fmt: skip


def at_equal_calls(ours: FloatArray, theirs: FloatArray) -> float:
    """The mean ratio of costs, where both lines through points (calls, cost) have calls in common."""
    ours, theirs = (points[np.argsort(points[:, 0])] for points in (ours, theirs))
    low, high = max(ours[0, 0], theirs[0, 0]), min(ours[-1, 0], theirs[-1, 0])
    calls = np.linspace(low, max(low, high), 5)
    return float(np.mean(np.interp(calls, *ours.T) / np.interp(calls, *theirs.T)))


if __name__ == "__main__":
    main()
