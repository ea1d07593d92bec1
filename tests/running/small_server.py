"""A model server that starts at once: `python small_server.py PORT [MANNERS...] FOLDER`.

It answers the questions in `questions.jsonl` of the folder, more often right for some models than for others, by
model, question and seed alone. With `slow` it thinks for a second; with `held` it answers ten requests (or N:
`held=N`), and further ones when there is a file `go` in the folder; with `broken` it fails to start; with `wordy` it
says a lot before the answer; with `stubborn` it ignores SIGTERM; with `diary` it writes down in `diary.jsonl` of the
folder which model answered a question when; with `bare` it lacks the model ada; with `picky` it fails each request
for ada's first question from when there is a file `go` in the folder.
"""

import itertools
import json
import os
import signal
import sys
import time
from hashlib import blake2b
from http.server import ThreadingHTTPServer
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from small_http import JsonHandler, completion, model_list

HELD = dict(word.partition("=")[::2] for word in sys.argv if word.partition("=")[0] == "held")
HELD_AFTER = int(HELD.get("held") or 10)
SKILLS = {"ada": 0.6, "bob": 0.5, "cyd": 0.2}
if "bare" in sys.argv:
    del SKILLS["ada"]


class Handler(JsonHandler):
    """The chat API, the list of models, and the health check."""

    def do_GET(self) -> None:
        replies = {"/health": {}, "/v1/models": model_list(*SKILLS)}
        self.reply(replies.get(self.path, {}), 200 if self.path in replies else 404)

    def do_POST(self) -> None:
        asked = self.asked()
        if asked["model"] not in SKILLS:
            self.reply({"error": {"message": f"the model {asked['model']} does not exist"}}, 404)
            return
        if "slow" in sys.argv:
            time.sleep(1.0)
        picked = asked["model"] == "ada" and QUESTIONS[0]["prompt"] in asked["messages"][-1]["content"]
        if "picky" in sys.argv and picked and GO.exists():
            self.reply({"error": {"message": "no such format"}}, 500)
            return
        number = next(COUNT)
        while HELD and number > HELD_AFTER and not GO.exists():
            time.sleep(0.05)
        prompt = asked["messages"][-1]["content"]
        text = answer(asked["model"], prompt, asked.get("seed", 0))
        if "diary" in sys.argv and any(row["prompt"] in prompt for row in QUESTIONS):
            with (Path(sys.argv[-1]) / "diary.jsonl").open("a") as diary:
                diary.write(json.dumps([asked["model"], os.getpid(), time.monotonic()]) + "\n")
        if "wordy" in sys.argv:
            text = f"{blake2b(str(number).encode()).hexdigest() * 2} is what I thought of first. {text}"
        self.reply(completion(text, usage=(9, 3)))


def answer(model: str, prompt: str, seed: int) -> str:
    """The right number with the model's probability, else 1."""
    right = next((row["answer"] for row in QUESTIONS if row["prompt"] in prompt), "1")
    digest = blake2b(f"{model} {prompt} {seed}".encode(), digest_size=8).digest()
    return f"It is {right if int.from_bytes(digest, 'big') / 2**64 < SKILLS[model] else 1}."


if __name__ == "__main__":
    print("the small server starts", os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("SHARD"), flush=True)
    COUNT, GO = itertools.count(1), Path(sys.argv[-1]) / "go"
    if "broken" in sys.argv:
        sys.exit("CUDA out of memory")
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    QUESTIONS = [json.loads(line) for line in (Path(sys.argv[-1]) / "questions.jsonl").read_text().splitlines()]
    ThreadingHTTPServer.request_queue_size = 1024  # who is not let in at once tries again after a second
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
