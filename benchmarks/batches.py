"""What a ranking costs through batch services, which are paid by the answer and waited for at every look.

    python benchmarks/batches.py [--quick] [--runs 100] [--json PATH]

The real controller on recorded and simulated outcomes. A fixed design asks every model for the most trials; a run
through batches costs its trials at half of the list price, and one waits for it once a look. Calls are beside
those of `optimize: cost`, the default for hosted models that are asked directly.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scenarios import paced, recorded, replay, simulated
from tables import Check, arguments, at_least, at_most, markdown, publish

from adaptive_eval.endpoints.batching import BATCH_PRICE
from scorio.moments import FloatArray

ALIKE = 0.1
"""Mean calls that differ by less are as many."""
HEADER = ("set", "pace", "trials", "price in batches", "looks", "called", "wrong")


def checks_of(name: str, usual: FloatArray, batched: FloatArray) -> Iterator[Check]:
    """The goals of batches, beside `optimize: cost`."""
    trials, looks, called, _ = batched
    yield at_most(f"{name}: price, beside fixed N at list price", BATCH_PRICE * trials, 0.33)
    yield at_most(f"{name}: price, beside fixed N in batches", trials, 0.66)
    yield at_least(f"{name}: calls", called, usual[2] - ALIKE)
    yield at_most(f"{name}: looks", looks, 12)


def main() -> None:
    options = arguments(__doc__, runs=100, quick_runs=12, data=True).parse_args()
    scenarios = [recorded(options.data, "aime2024")] if options.data.is_dir() else []
    rows, checks = list[tuple[object, ...]](), list[Check]()
    with ProcessPoolExecutor() as pool:
        for scenario in (*scenarios, simulated("coins")):
            means = []
            for pace, batched in (("`cost`", False), ("in batches", True)):
                plan = scenario.plan(**paced(scenario, "cost", batched=batched))
                runs = list(pool.map(replay, [scenario] * options.runs, [plan] * options.runs, range(options.runs)))
                means.append(np.mean([(run.cost, run.looks, run.called, run.wrong) for run in runs], axis=0))
                trials, looks, called, wrong = means[-1].tolist()
                price = BATCH_PRICE * trials
                rows.append((scenario.name, pace, trials, price, f"{looks:.1f}", f"{called:.2f}", f"{wrong:.2f}"))
            checks += checks_of(scenario.name, *means)
    about = f"{options.runs} seeded runs a row, batches at {BATCH_PRICE:g} of the list price."
    publish(options, "Batches", about, markdown(HEADER, rows), checks=checks)


if __name__ == "__main__":
    main()
