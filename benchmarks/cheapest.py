"""How often the choice of the cheapest model that will do is too weak, what it costs, and what it saves later.

Replays of recorded sets, in which each model has a list price. A choice is too weak if the model is behind the best by
more than delta. Truth are the shares of all recorded answers.

    python benchmarks/cheapest.py [--quick] [--runs 150] [--json PATH]
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scenarios import RECORDED, RECORDED_CAPS, Scenario, paced, recorded
from tables import Check, arguments, at_most, markdown, publish

from adaptive_eval.core import Cheapest, Controller
from adaptive_eval.core.types import Cost, Reason
from adaptive_eval.simulate.worlds import World, binary, with_mean
from adaptive_eval.study.drive import drive_rounds

DELTAS = (0.02, 0.05, 0.10)
BEST = 12
PROMPT, ANSWER = 500, 1000
"""Tokens of every prompt and answer, assumed: the sets have none."""
LISTED = {
    "deepseek_r1_distill_llama_70b": (0.20, 0.60),
    "deepseek_r1_distill_qwen_32b": (0.27, 0.27),
    "google_gemma_3_27b_it": (0.09, 0.16),
    "google_gemma_3_12b_it": (0.05, 0.10),
    "llama-3.1-70B-instruct": (0.40, 0.40),
    "qwen3-32b": (0.10, 0.28),
    "qwen3-14b": (0.06, 0.24),
    "Qwen2.5-72B-Instruct": (0.12, 0.39),
    "Qwen2.5-7B-Instruct": (0.04, 0.10),
    "Meta-Llama-3.1-8B-Instruct": (0.03, 0.05),
    "gemma-3-4b-it": (0.04, 0.08),
    "GPT-4-Turbo-2024-04-09": (10.0, 30.0),
    "GPT-4-Turbo-1106": (10.0, 30.0),
    "GPT-4-0613": (30.0, 60.0),
    "Claude-3-Opus": (15.0, 75.0),
    "Claude-3-Sonnet": (3.0, 15.0),
    "Claude-3-Haiku": (0.25, 1.25),
    "Mistral-Large": (8.0, 24.0),
}
"""USD per million tokens read and written, by `model_prices_and_context_window_backup.json` of LiteLLM 1.80.0: of open
models under `deepinfra/`, of Claude 3 Sonnet under `openrouter/`, of Mistral Large (2402) under `azure/`."""
NEAREST = {
    "deepseek_r1_distill_qwen_14b": "qwen3-14b",
    "deepseek_r1_distill_qwen_7b": "Qwen2.5-7B-Instruct",
    "deepseek_r1_distill_llama_8b": "Meta-Llama-3.1-8B-Instruct",
    "qwen3-8b": "Qwen2.5-7B-Instruct",
    "qwen3-4b": "gemma-3-4b-it",
    "qwen2-math-72b-instruct": "Qwen2.5-72B-Instruct",
    "qwen2-72b-instruct": "Qwen2.5-72B-Instruct",
    "qwen2.5-coder-32b-instruct": "qwen3-32b",
    "qwen2.5-coder-14b-instruct": "qwen3-14b",
    "qwen1.5-32b-chat": "qwen3-32b",
    "WCoder-33B-V1.1": "qwen3-32b",
    "DSCoder-33b-Ins": "qwen3-32b",
    "DSCoder-33b-Base": "qwen3-32b",
    "OC-DS-33B": "qwen3-32b",
    "CodeQwen15-7B-Chat": "Qwen2.5-7B-Instruct",
}
"""Models that the list does not have, with the one of about the same size whose price they get."""
AT_MARGIN = 8
"""Models that are behind the best by just more than delta, all cheaper."""
TOP, WORLD_DELTA, QUESTIONS = 0.60, 0.05, 30
"""Of simulated worlds: the best score, delta, and the number of questions."""
MOST_WEAK, MOST_COST = 0.05, 0.50
HEADER = ("set", "delta", "too weak", "chosen", "undecided, cheaper", "answers", "USD", "price", "best possible")


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
    """USD of one answer by the price list."""
    read, written = LISTED[NEAREST.get(model, model)]
    return (PROMPT * read + ANSWER * written) / 1e6


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


def simulated(name: str, means: Sequence[float], usd: Sequence[float]) -> Scenario:
    """Models with these scores and costs on the same questions, some of them easier for all."""
    profile = 1.0 / (1.0 + np.exp(-np.random.default_rng(0).normal(0.0, 2.0, QUESTIONS)))
    world = World(name, binary(np.array([with_mean(profile, mean) for mean in means])))
    return with_costs(Scenario(name, world), usd)


def worlds() -> list[Scenario]:
    """Models that are hard to choose among at `WORLD_DELTA`."""
    rising = [1e-4 * (1 + at) for at in range(AT_MARGIN + 1)]
    too_weak = TOP - WORLD_DELTA - 1e-6
    return [
        simulated(f"{AT_MARGIN} at the margin", [too_weak] * AT_MARGIN + [TOP], rising),
        simulated("one just beyond", [TOP - WORLD_DELTA - 0.01, TOP - 0.02, TOP], rising[:3]),
        simulated("best is cheapest", [TOP, 0.55, 0.50, 0.45], rising[:4]),
        simulated("equal costs", [0.45, 0.50, too_weak, TOP], rising[:1] * 4),
    ]


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
    return Chosen._make([*np.nanmean(rows, axis=0).tolist(), float(possible)])


def main() -> None:
    options = arguments(__doc__, runs=150, quick_runs=10, data=True).parse_args()
    sets = [priced(options.data, name) for name in RECORDED_CAPS] if options.data.is_dir() else []
    asked = [(scenario, delta) for scenario in sets for delta in DELTAS]
    asked += [(scenario, WORLD_DELTA) for scenario in worlds()]
    table, checks = list[tuple[object, ...]](), list[Check]()
    for scenario, delta in asked[:1] + asked[-1:] if options.quick else asked:
        result = play(scenario, delta, options.runs)
        shares = f"{result.weak:.1%}", f"{result.chosen:.0%}", f"{result.undecided:.0%}"
        table.append((scenario.name, f"{delta:.0%}", *shares, *(f"{figure:.2f}" for figure in result[3:])))
        name = f"{scenario.name}, {delta:.0%}"
        checks.append(at_most(f"{name}: too weak", result.weak, MOST_WEAK))
        if scenario.counts is not None:
            checks.append(at_most(f"{name}: USD", result.usd, MOST_COST))
    about = f"{options.runs} seeded runs per row, `optimize: cost`."
    publish(options, "The cheapest that will do", __doc__, about, markdown(HEADER, table), checks=checks)


if __name__ == "__main__":
    main()
