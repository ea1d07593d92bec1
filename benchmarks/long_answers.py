"""What one answer of 8,000 tokens costs of the processor, where it is read and where it is stored.

    python benchmarks/long_answers.py [--quick] [--json PATH] [--markdown PATH]

A stream comes as a server writes it, an event a token, each event by itself; log-probabilities come in a response in
one piece, alone or with those of the likeliest tokens beside each; the text is compressed as the store does it. The
least of many turns counts: other programs only add to it.
"""

import random
import time
from collections.abc import Callable
from functools import partial

import orjson
from tables import Check, arguments, conclude, markdown

from adaptive_eval.endpoints.answers import AnswerReader, ResponseOrigin
from adaptive_eval.endpoints.parsing import StreamReader, parse_server_json
from adaptive_eval.endpoints.types import EndpointConfig, Message, Prompt
from adaptive_eval.store import rows

TOKENS, VOCABULARY = 8000, 3000
PROMPT, ORIGIN = Prompt(messages=(Message("user", "?"),)), ResponseOrigin("http://a/v1", 1.0, None, 1)
STREAM_GOAL, LOGPROBS_GOAL, PACKING_GOAL = 6.0, 2.0, 1.0
HEADER = ("what is done", "bytes", "ms")


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    turns = 8 if options.quick else 60
    tokens = written(random.Random(1))
    text, stream = "".join(tokens), streamed(tokens)
    plain, one, five = (with_logprobs(tokens, beside, random.Random(2)) for beside in (0, 1, 5))
    table = [
        ("a stream is read", sum(map(len, stream)), least(lambda: read_stream(stream), turns)),
        *(
            (f"log-probabilities are read{name}", len(body), least(partial(read_logprobs, body), turns))
            for name, body in (("", plain), (", one more beside each", one), (", five more", five))
        ),
        ("the text is compressed", len(text), least(lambda: rows.pack_text(text), turns)),
    ]
    goals = ((0, STREAM_GOAL), (1, LOGPROBS_GOAL), (4, PACKING_GOAL))
    checks = [
        Check(f"ms: {table[at][0]}", round(float(table[at][2]), 3), f"<= {goal}", float(table[at][2]) <= goal)
        for at, goal in goals
    ]
    about = "\n\n".join(part for part in __doc__.split("\n\n") if not part.startswith("    "))
    conclude(options, "Long answers", about, f"CPU time, the least of {turns} turns", markdown(HEADER, table), checks)


def written(rng: random.Random) -> list[str]:
    words = ["".join(rng.choices("abcdefghijklmnopqrst", k=rng.randint(1, 7))) for _ in range(VOCABULARY)]
    return [f" {rng.choice(words)}" for _ in range(TOKENS)]


def streamed(tokens: list[str]) -> list[bytes]:
    """The events of vLLM."""
    head = {"id": "chatcmpl-1234567890abcdef", "object": "chat.completion.chunk", "created": 1733333333, "model": "m"}
    choices = [{"index": 0, "delta": {"content": one}, "logprobs": None, "finish_reason": None} for one in tokens]
    events = [orjson.dumps({**head, "choices": [choice]}) for choice in choices]
    usage = {"prompt_tokens": 40, "completion_tokens": len(tokens)}
    events.append(orjson.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}))
    return [b"data: %b\n\n" % event for event in (*events, b"[DONE]")]


def with_logprobs(tokens: list[str], beside: int, rng: random.Random) -> bytes:
    def told(token: str) -> dict[str, object]:
        return {"token": token, "logprob": -9.0 * rng.random(), "bytes": list(token.encode())}

    content = [told(one) | {"top_logprobs": [told(rng.choice(tokens)) for _ in range(beside)]} for one in tokens]
    message = {"role": "assistant", "content": "".join(tokens)}
    choice = {"index": 0, "message": message, "logprobs": {"content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 40, "completion_tokens": len(tokens)}
    return orjson.dumps({"model": "m", "choices": [choice], "usage": usage})


def read_stream(stream: list[bytes]) -> None:
    reader = StreamReader(True, time.perf_counter)
    for event in stream:
        reader.feed(event)
    assert reader.replacement() is None
    answered(reader.payload())


def read_logprobs(body: bytes) -> None:
    answered(parse_server_json(body))


def answered(payload: object) -> None:
    reader = AnswerReader(EndpointConfig(base_url="http://a/v1", model="m"))
    (answer,) = reader.answers(payload, PROMPT, range(1), ORIGIN)
    assert answer.completion_tokens == TOKENS


def least(work: Callable[[], object], turns: int) -> float:
    """Milliseconds."""
    taken = []
    for _ in range(turns):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return 1e3 * min(taken)


if __name__ == "__main__":
    main()
