"""How often the choice of the cheapest model that will do is too weak, what it costs, and what it saves later.

Replays of recorded sets, in which each model has a list price. A choice is too weak if the model is behind the best by
more than delta. Truth are the shares of all recorded answers.

    python benchmarks/cheapest.py [--quick] [--runs 150] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scenarios import RECORDED, RECORDED_CAPS, Scenario, paced, recorded
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.core import Cheapest, Controller
from adaptive_eval.core.types import Cost, Reason
from adaptive_eval.simulate.worlds import World, binary, with_mean
from adaptive_eval.study.drive import drive_rounds

DELTAS = (0.02, 0.05, 0.10)
BEST = 12
PROMPT, ANSWER = 500, 1000
"""Tokens of every prompt and answer, assumed: the sets have none."""
BY_SIZE = ((4, 0.1), (8, 0.2), (21, 0.3), (41, 0.8), (80, 0.9))
"""Billions of parameters, and USD per million tokens of models up to that size (Together AI, January 2025)."""
LISTED = {
    "GPT-4-Turbo-2024-04-09": (10.0, 30.0),
    "GPT-4-Turbo-1106": (10.0, 30.0),
    "GPT-4-0613": (30.0, 60.0),
    "GPT-3.5-Turbo-0125": (0.5, 1.5),
    "Claude-3-Opus": (15.0, 75.0),
    "Claude-3-Sonnet": (3.0, 15.0),
    "Claude-3-Haiku": (0.25, 1.25),
    "Claude-2": (8.0, 24.0),
    "Mistral-Large": (8.0, 24.0),
}
"""USD per million tokens read and written (OpenAI, Anthropic and Mistral, April 2024)."""
SIZES = {"dscoder-33b": 33, "wcoder-33b": 33, "oc-ds-33b": 33, "codeqwen15-7b": 7}
AT_MARGIN = 8
"""Models that are behind the best by just more than delta, all cheaper."""
MOST_WEAK, MOST_COST = 0.05, 0.50
HEADER = ("set", "delta", "too weak", "chosen", "undecided, cheaper", "answers", "USD", "price", "best possible")

EXPLAINED = """\
{runs} seeded runs per row, `optimize: cost`. *Too weak*: runs that choose a model behind the best by more than delta.
*Chosen*: runs with a choice. *Undecided, cheaper*: of these, runs in which a cheaper model may do as well. *Answers*,
*USD*: of those of the full design. *Price*: the chosen model's as a share of the best one's; *best possible*: if the
truth was known. Machine: {machine}."""


class Chosen(NamedTuple):
    """Runs of one set: shares and means."""

    weak: float
    chosen: float
    undecided: float
    answers: float
    usd: float
    price: float
    possible: float


def price_of(model: str) -> float:
    """USD of one answer by the price lists."""
    name = model.lower()
    read, written = LISTED.get(model, (0.0, 0.0))
    if not written:
        read = written = next(price for size, price in BY_SIZE if _billions(name) <= size)
    return (PROMPT * read + ANSWER * written) / 1e6


def _billions(name: str) -> float:
    for begin, size in SIZES.items():
        if name.startswith(begin):
            return size
    parts = name.replace("_", "-").split("-")
    return next(float(part[:-1]) for part in parts if part.endswith("b") and part[:-1].replace(".", "").isdigit())


def priced(folder: Path, name: str) -> Scenario:
    """The best models of a recorded set with their prices."""
    scenario = recorded(folder, name, BEST)
    with np.load(folder / RECORDED[name]) as data:
        shares = (data["correct"] / data["count"]).mean(axis=1)
        models = data["models"][np.argsort(-shares, kind="stable")[:BEST]].tolist()
    return with_costs(scenario, [price_of(model) for model in models])


def with_costs(scenario: Scenario, usd: Sequence[float]) -> Scenario:
    """The scenario with these costs of an answer."""
    costs = tuple(Cost(PROMPT + ANSWER, price) for price in usd)
    return Scenario(scenario.name, scenario.world, scenario.counts, scenario.cap, costs)


def at_margin(delta: float) -> Scenario:
    """Cheap models that are all just too weak, and the best one."""
    profile = 1.0 / (1.0 + np.exp(-np.random.default_rng(0).normal(0.0, 2.0, 30)))
    means = [*[0.6 - delta - 1e-6] * AT_MARGIN, 0.6]
    world = World("margin", binary(np.array([with_mean(profile, mean) for mean in means])))
    return with_costs(Scenario(f"{AT_MARGIN} at the margin", world), [1e-4 * (1 + at) for at in range(len(means))])


def play(scenario: Scenario, delta: float, runs: int) -> Chosen:
    """Seeded replays."""
    truth, costs = scenario.world.truth, scenario.costs
    assert costs is not None
    usd, rows = np.array([cost.usd for cost in costs]), list[tuple[float, ...]]()
    models, questions, _ = scenario.world.p.shape
    all_trials = questions * scenario.cap
    best = int(truth.argmax())
    possible = usd[truth >= truth[best] - delta].min() / usd[best]
    plan = scenario.plan(**paced(scenario, "cost"), objective=Cheapest(delta))
    for seed in range(runs):
        controller = Controller(plan, keep_looks=False)
        drive_rounds(controller, scenario.tape(seed), [[cost] * 2 for cost in costs])
        assert controller.last_look is not None and controller.last_look.choice is not None
        choice, trials = controller.last_look.choice, controller.trials
        weak = choice.made and truth[choice.candidate] < truth[best] - delta
        assert (controller.finished is Reason.SETTLED) == (choice.made and not choice.undecided.any())
        price = usd[choice.candidate] / usd[best] if choice.made else np.nan
        used = trials.sum() / (models * all_trials), trials @ usd / (usd.sum() * all_trials)
        is_undecided = choice.made and choice.undecided.any()
        rows.append(tuple(map(float, (weak, choice.made, is_undecided, *used, price))))
    weak_share, chosen, undecided, answers, paid, mean_price = np.nanmean(rows, axis=0).tolist()
    return Chosen(weak_share, chosen, undecided, answers, paid, mean_price, float(possible))


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    add_data(parser)
    parser.add_argument("--runs", type=int, default=150, help="seeded runs per row")
    options = parser.parse_args()
    runs = 10 if options.quick else options.runs
    sets = [priced(options.data, name) for name in RECORDED_CAPS] if options.data.is_dir() else []
    asked = [(scenario, delta) for scenario in sets for delta in DELTAS]
    asked.append((at_margin(0.05), 0.05))
    table, checks = list[tuple[object, ...]](), list[Check]()
    for scenario, delta in asked[:1] + asked[-1:] if options.quick else asked:
        result = play(scenario, delta, runs)
        table.append((
            scenario.name, f"{delta:.0%}", f"{result.weak:.1%}", f"{result.chosen:.0%}", f"{result.undecided:.0%}",
            f"{result.answers:.2f}", f"{result.usd:.2f}", f"{result.price:.2f}", f"{result.possible:.2f}",
        ))  # fmt: skip
        print(*table[-1], flush=True)
        name = f"{scenario.name}, {delta:.0%}"
        checks.append(Check(f"{name}: too weak", round(result.weak, 3), f"<= {MOST_WEAK:g}", result.weak <= MOST_WEAK))
        if scenario.counts is not None:
            checks.append(Check(f"{name}: USD", round(result.usd, 2), f"<= {MOST_COST:g}", result.usd <= MOST_COST))
    about = EXPLAINED.format(runs=runs, machine=machine())
    parts = [
        "# The cheapest that will do",
        (__doc__ or "").strip(),
        about,
        markdown(HEADER, table),
        check_table(checks),
    ]
    publish(options, "\n\n".join(parts), checks)


if __name__ == "__main__":
    main()
