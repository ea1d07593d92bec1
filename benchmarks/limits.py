"""How much of a limit on tokens a run uses, and what it decides with it.

    python benchmarks/limits.py [--quick] [--json PATH]

A round that may cost more than is left is asked in parts if it probably fits; the other rows leave it out. The limit is
a share of what 20 trials of each question by each model cost; the tokens of answers have a lognormal distribution.
Whatever a run has asked, it stays within its limit. In the runs of equal models wrong answers take twice the tokens.

The second table: a first round of 4 trials of each question, and one of 2. A run that ends within it has no ranking.
worst/limit is the most that a round of 4 may cost, over the limit: above 3, `trials.min` is 2 by default.
"""

from collections.abc import Iterator
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from tables import arguments, at_most, markdown, publish

from adaptive_eval.config.decisions import LEAST_TRIALS, LEAST_UNDER_CAPS
from adaptive_eval.core import Bench, Budget, Controller, Cost, Outcome, Plan, Reason, Trials, Verdict
from adaptive_eval.core.compose import RoundComposer

MOST = 20
"""Trials per question at most, on average; a question may have more."""
PROMPT = 600
"""Tokens that are reserved for the prompt; it has none."""
SPREAD = 0.7
"""Standard deviation of the logarithm of an answer's tokens."""


class Setting(NamedTuple):
    models: int
    questions: int
    max_tokens: int
    median: float
    """Tokens of half of the answers."""
    share: float
    """The limit, as a share of what all trials cost on average."""
    equal: bool = False
    """All models answer every question alike, and wrong answers take twice the tokens."""

    @property
    def name(self) -> str:
        return f"{self.models} x {self.questions}, max_tokens {self.max_tokens:,}, {self.share:.0%}"


class Run(NamedTuple):
    used: float
    """Of the limit."""
    decided: int
    by_limit: bool
    ranked: bool


def simulate(setting: Setting, seed: int, min_trials: int = LEAST_TRIALS) -> Run:
    rng = np.random.default_rng(seed)
    models, questions = setting.models, setting.questions
    skill = np.zeros(models) if setting.equal else np.linspace(0.6, -0.6, models)
    taste = 0.0 if setting.equal else 0.5
    logit = skill[:, None] + rng.normal(0.0, 1.5, questions) + taste * rng.normal(size=(models, questions))
    right = rng.random((models, questions, 4 * MOST)) < (1.0 / (1.0 + np.exp(-logit)))[..., None]
    length = setting.median * np.exp(SPREAD * rng.normal(size=right.shape))
    tokens = np.minimum(np.where(setting.equal & ~right, 2.0, 1.0) * length, setting.max_tokens).astype(int)
    limit = int(setting.share * tokens[..., :MOST].sum())
    bench = Bench(models, questions, np.array([0.0, 1.0]), (Cost(setting.max_tokens + PROMPT),) * models)
    controller = Controller(Plan(bench, trials=Trials(min=min_trials, max=MOST), budget=Budget(tokens=limit)))
    used = 0
    while controller.finished is None:
        at = [ask[:3] for ask in controller.ask(slots=64)]
        used += sum(int(tokens[place]) for place in at)
        controller.tell([Outcome(*place, int(right[place]), Cost(int(tokens[place]))) for place in at])
    assert used <= limit
    look = controller.latest_look()
    decided = 0 if look is None else look.count(Verdict.RESOLVED)
    return Run(used / limit, decided, controller.finished is Reason.BUDGET, look is not None)


def without_parts(setting: Setting, seed: int) -> Run:
    """A run that asks no round which may cost more than is left."""
    with patch.object(RoundComposer, "round_in_parts", lambda composer: np.zeros_like(composer.flight.issued)):
        return simulate(setting, seed)


SETTINGS = (
    Setting(3, 30, 8_192, 1_200.0, 0.50),
    Setting(6, 30, 32_768, 6_000.0, 0.60),
    Setting(4, 164, 2_048, 300.0, 0.25),
)
TIES = (Setting(2, 30, 4_096, 900.0, 0.4, equal=True), Setting(4, 60, 8_192, 900.0, 0.6, equal=True))


def rows(runs: int) -> Iterator[tuple[object, ...]]:
    for setting in SETTINGS:
        for name, kind in (("in parts", simulate), ("not at all", without_parts)):
            done = [kind(setting, seed) for seed in range(runs)]
            stopped = [run.used for run in done if run.by_limit]
            share, decided = f"{np.mean(stopped):.0%}" if stopped else "", np.mean([run.decided for run in done])
            yield setting.name, name, f"{len(stopped) / runs:.0%}", share, f"{decided:.2f}"


def first_rounds(runs: int) -> Iterator[tuple[object, ...]]:
    """What a limit is good for with a first round of usual size, and with a small one."""
    for setting in (setting._replace(share=share) for setting in SETTINGS for share in (0.16, 0.50)):
        mean = setting.median * float(np.exp(SPREAD**2 / 2))
        worst = LEAST_TRIALS / MOST * (setting.max_tokens + PROMPT) / mean
        cells = [setting.name, f"{worst / setting.share:.1f}"]
        for min_trials in (LEAST_TRIALS, LEAST_UNDER_CAPS):
            done = [simulate(setting, seed, min_trials) for seed in range(runs)]
            cells += [f"{np.mean([run.ranked for run in done]):.0%}", f"{np.mean([run.decided for run in done]):.2f}"]
        yield tuple(cells)


def main() -> None:
    options = arguments(__doc__, runs=200, quick_runs=10).parse_args()
    runs, ties, checks = options.runs, 20 if options.quick else 1000, []
    for setting in TIES:
        called = np.mean([simulate(setting, seed).decided / (setting.models - 1) for seed in range(ties)])
        checks.append(at_most(f"ties called, {setting.name}", float(called), 0.1))
    header = ("models x questions, limit", "such a round", "ended by the limit", "of it used", "decided")
    ranked = ("models x questions, limit", "worst/limit", "4: ranked", "decided", "2: ranked", "decided")
    tables = f"{markdown(header, rows(runs))}\n\n{markdown(ranked, first_rounds(runs))}"
    publish(
        options, "A limit on tokens", __doc__, f"{runs} runs a row, {ties:,} of equal models.", tables, checks=checks
    )


if __name__ == "__main__":
    main()
