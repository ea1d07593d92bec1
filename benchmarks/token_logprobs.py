"""What it costs to keep every token of an answer of 8,000 tokens with its log-probability.

    python benchmarks/token_logprobs.py [--quick] [--json PATH] [--markdown PATH]

Words are as frequent as in a language (Zipf, of 3,000). Of the tokens half are nearly certain, as in real answers, and
the others have log-probabilities of -1 on average. Beside each step is the one that a run takes without them. The least
of many turns counts: other programs only add to it.
"""

import math
import random
from functools import partial

import orjson
from long_answers import ORIGIN, PROMPT, TOKENS, VOCABULARY, least
from tables import Check, arguments, conclude, markdown

from adaptive_eval.endpoints.answers import AnswerReader
from adaptive_eval.endpoints.parsing import parse_server_json
from adaptive_eval.endpoints.types import Answer, EndpointConfig
from adaptive_eval.graders.types import token_facts
from adaptive_eval.store import rows

BYTES_GOAL, PACKING_GOAL = 3.5, 6.0
HEADER = ("what is done", "ms", "bytes", "bytes a token")


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    turns = 8 if options.quick else 60
    body = response(random.Random(1))
    (answer,) = read(body, keeps=True)
    told = answer.token_logprobs
    assert told is not None and len(told.tokens) == TOKENS
    packed, text = rows.pack_logprobs(told), rows.pack_text(answer.text)
    assert rows.unpack_logprobs(packed).tokens == told.tokens and text is not None
    steps = (
        ("the response is read, and the mean kept", partial(read, body, keeps=False), len(body)),
        ("the response is read, and all tokens kept", partial(read, body, keeps=True), len(body)),
        ("the signals are worked out", partial(token_facts, told), None),
        ("the text is compressed", partial(rows.pack_text, answer.text), len(text)),
        ("tokens and log-probabilities are compressed", partial(rows.pack_logprobs, told), len(packed)),
        ("they are read again", partial(rows.unpack_logprobs, packed), len(packed)),
    )
    table = [
        (name, f"{least(step, turns):.2f}", size or "", f"{size / TOKENS:.2f}" if size else "")
        for name, step, size in steps
    ]
    packing = float(table[4][1])
    checks = [
        Check("bytes a token", round(len(packed) / TOKENS, 2), f"<= {BYTES_GOAL}", len(packed) <= BYTES_GOAL * TOKENS),
        Check("ms to compress 8,000 tokens", packing, f"<= {PACKING_GOAL}", packing <= PACKING_GOAL),
    ]
    about = "\n\n".join(part for part in __doc__.split("\n\n") if not part.startswith("    "))
    title = "Tokens with their log-probabilities"
    conclude(options, title, about, f"CPU time, the least of {turns} turns", markdown(HEADER, table), checks)


def response(rng: random.Random) -> bytes:
    """One answer, as a server writes it."""
    words = ["".join(rng.choices("abcdefghijklmnopqrst", k=rng.randint(1, 7))) for _ in range(VOCABULARY)]
    drawn = rng.choices(words, [1 / rank for rank in range(1, VOCABULARY + 1)], k=TOKENS)
    tokens = [f" {word}" for word in drawn]
    values = [-rng.expovariate(1e4 if rng.random() < 0.5 else 1.0) for _ in tokens]
    content = [
        {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": []}
        for token, value in zip(tokens, values, strict=True)
    ]
    message = {"role": "assistant", "content": "".join(tokens)}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": content}}
    return orjson.dumps({"choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": TOKENS}})


def read(body: bytes, *, keeps: bool) -> list[Answer]:
    reader = AnswerReader(EndpointConfig(base_url="http://a/v1", model="m"), keeps_tokens=keeps)
    answers = reader.answers(parse_server_json(body), PROMPT, range(1), ORIGIN)
    assert all(math.isfinite(one.completion_bpt or 0.0) for one in answers)
    return answers


if __name__ == "__main__":
    main()
