"""A model that is a command: it runs one sample of a task of Inspect, and prints its score.

    adaptive-eval run samples.jsonl --command small='python ./command_inspect.py ./task.py openai/small' \
        --key small=OPENAI_API_KEY --command ...

The id of a question is that of its sample; `pip install inspect-ai openai`.
"""

import json
import os
import sys
from pathlib import Path

from inspect_ai import eval as run_task
from inspect_ai.scorer import value_to_float


def main(task: str, model: str) -> None:
    """Run the sample that is named on standard input."""
    asked = json.load(sys.stdin)
    task = os.path.relpath(task) if Path(task).is_absolute() else task  # Inspect finds no absolute paths
    seed = {"seed": asked["seed"] % 2**31}
    (log,) = run_task(task, model=model, sample_id=asked["id"], epochs=1, log_dir=".", display="none", **seed)
    if log.status != "success" or not log.samples:
        raise SystemExit(f"Inspect ended with {log.status}: {log.error and log.error.message}")
    score = next(iter((log.samples[0].scores or {}).values()))
    tokens = sum(usage.total_tokens for usage in log.stats.model_usage.values())
    print(json.dumps({"score": value_to_float()(score.value), "tokens": tokens, "transcript": log.location}))


if __name__ == "__main__":
    main(*sys.argv[1:])
