"""Four models, ten questions, up to twenty epochs: Inspect runs the samples, adaptive-eval says which.

    pip install 'adaptive-eval[inspect]'
    python examples/inspect_adaptive.py

The models are Inspect's mock models with a known chance to be right, so that nothing is needed but this file. Put real
ones in their place: name them in MODELS, as in `inspect eval --model`, and give them to `eval` as they are.
"""

import random
from functools import partial
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate

from adaptive_eval.exchange.inspect.adapter import AdaptiveStopping
from adaptive_eval.record.results import Results

MODELS = {"mockllm/ada": 0.85, "mockllm/bob": 0.60, "mockllm/cyd": 0.58, "mockllm/dan": 0.30}
"""How often each of them is right."""
QUESTIONS, EPOCHS = 10, 20


def mock_model(name: str) -> Model:
    """A model that is right by chance."""
    chance = random.Random(name)

    def answer(chance: random.Random, skill: float, *arguments: Any) -> ModelOutput:
        output = ModelOutput.from_content(name, "42" if chance.random() < skill else "41")
        output.usage = ModelUsage(input_tokens=10, output_tokens=1, total_tokens=11)
        return output

    return get_model(name, custom_outputs=partial(answer, chance, MODELS[name]), memoize=False)


def main() -> None:
    """Rank the models, and say what it took."""
    manager = AdaptiveStopping(
        list(MODELS),
        {"objective": "ranking", "stopping": {"delta": "10%"}, "trials": {"min": 4, "max": EPOCHS}},
    )
    task = Task(
        dataset=[Sample(id=f"q{number}", input="6 * 7?", target="42") for number in range(QUESTIONS)],
        solver=generate(),
        scorer=match(),
        epochs=EPOCHS + 2,  # a few to spare, for samples that end in an error
        early_stopping=manager,
    )
    logs = eval(
        task,
        model=[mock_model(name) for name in MODELS],
        fail_on_error=False,
        max_samples=2 * QUESTIONS,
        display="none",
    )
    results = manager.result()
    assert results is not None
    show(results)
    for log in logs:
        print(f"{log.eval.model}: {len(log.samples or [])} samples in {log.location}")


def show(results: Results) -> None:
    """The ranking, and the samples that were run, of all there are."""
    for row in results.models:
        print(f"tier {row.tier}  {row.name:12}  {row.score:.1%}  ({row.lo:.1%} to {row.hi:.1%})  {row.trials} samples")
    for pair in results.pairs:
        print(f"{pair.better} over {pair.worse}: {pair.verdict}, z {pair.z:.2f} of {pair.boundary:.2f}")
    ran = sum(row.trials for row in results.models)
    print(f"{ran} of {results.cost.fixed_trials} samples were run ({ran / results.cost.fixed_trials:.0%})")


if __name__ == "__main__":
    main()
