"""A model that is a command: it asks a server, and prints its answer, its tokens and a transcript.

    adaptive-eval run aime.jsonl --command plain='python ./command_agent.py http://localhost:8000/v1 small' \
        --command careful='python ./command_agent.py http://localhost:8000/v1 small Check_your_answer.'
"""

import json
import sys
from pathlib import Path
from urllib.request import Request, urlopen


def main(base_url: str, model: str, advice: str = "") -> None:
    """Answer the question on standard input."""
    asked = json.load(sys.stdin)
    messages = [{"role": "user", "content": f"{asked['prompt']}\n{advice}".rstrip()}]
    body = json.dumps({"model": model, "messages": messages, "seed": asked["seed"]}).encode()
    with urlopen(Request(f"{base_url}/chat/completions", body, {"Content-Type": "application/json"})) as response:
        reply = json.load(response)
    Path("transcript.json").write_text(json.dumps([messages, reply]))
    text, tokens = reply["choices"][0]["message"]["content"], reply["usage"]["total_tokens"]
    print(json.dumps({"answer": text, "tokens": tokens, "transcript": "transcript.json"}))


if __name__ == "__main__":
    main(*sys.argv[1:])
