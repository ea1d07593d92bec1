"""A model that is a command: it plays one episode of a task of verifiers, and prints its reward.

    adaptive-eval run tasks.jsonl --command a='python ./command_verifiers.py gsm8k small http://localhost:8000/v1' ...

The id of a question is that of its task; `pip install verifiers uv`, and the taskset. Further words are options of
`vf-eval`, such as --env.agent.harness.id bash.
"""

import json
import subprocess
import sys
from pathlib import Path

OPTIONS = "-n 1 --env.agent.runtime.type subprocess --no-push --no-rich --output-dir . --run.dir episode"


def main(taskset: str, model: str, base_url: str, *options: str) -> None:
    """Play the task that is named on standard input."""
    asked = json.load(sys.stdin)
    chosen = ["--select.include.ids", json.dumps([asked["id"]])]
    server = ["--model", model, "--client.base-url", base_url]
    subprocess.run(["vf-eval", taskset, *chosen, *server, *OPTIONS.split(), *options], stdout=sys.stderr, check=True)
    episode = json.loads(Path("episode/traces.jsonl").read_text())
    if not episode["ok"]:
        raise SystemExit(f"the episode has failed: {episode['errors']}")
    rewards = [reward for trace in episode["traces"] for reward in trace["rewards"].values()]
    score = sum(reward["score"] * reward["weight"] for reward in rewards)
    print(json.dumps({"score": score, "tokens": episode["num_total_tokens"], "transcript": "episode/traces.jsonl"}))


if __name__ == "__main__":
    main(*sys.argv[1:])
