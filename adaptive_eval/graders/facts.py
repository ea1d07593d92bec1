"""What is known of an answer before any grader has read it: signals that every rubric may use."""

from typing import get_args

from adaptive_eval.endpoints.types import Answer, Signal
from adaptive_eval.graders.types import SignalValue
from scorio.categorical.signals import TOKEN_CAP

FLAGS: tuple[str, ...] = get_args(Signal)
MEASURES = ("completion_tokens", "prompt_tokens", "token_ratio", "repeated_pattern", "completion_bpt", "prompt_bpt")
ANSWER_SIGNALS = frozenset({*FLAGS, *MEASURES})

REFUSAL_OPENINGS = (
    "i'm sorry, but i can't",
    "i'm sorry, but i cannot",
    "i'm sorry, i can't",
    "i'm sorry, i cannot",
    "sorry, but i can't",
    "sorry, i can't",
    "i can't help with",
    "i can't assist with",
    "i cannot help with",
    "i cannot assist with",
    "i'm unable to help with",
    "i'm unable to assist with",
    "i won't help with",
    "i must decline",
)
MAX_REFUSAL = 600


def answer_facts(answer: Answer) -> dict[str, SignalValue]:
    """The flags of an answer, and what was measured of it; without log-probabilities the bits per token are missing.

    token_ratio = completion tokens / 32,768; repeated_pattern = 1 unless the model stopped by itself (paper, D.1).
    """
    facts: dict[str, SignalValue] = {flag: flag in answer.signals for flag in FLAGS}
    facts["completion_tokens"] = float(answer.completion_tokens)
    facts["prompt_tokens"] = float(answer.prompt_tokens)
    facts["token_ratio"] = answer.completion_tokens / TOKEN_CAP
    facts["repeated_pattern"] = float(answer.finish_reason != "stop")
    if answer.completion_bpt is not None:
        facts["completion_bpt"] = answer.completion_bpt
    if answer.prompt_bpt is not None:
        facts["prompt_bpt"] = answer.prompt_bpt
    return facts


def reads_as_refusal(text: str) -> bool:
    """A short text that opens with one of the fixed phrases above.

    It is meant to miss refusals rather than to invent them, and is only asked where the grader found no answer: a model
    that apologises and then answers has answered.
    """
    opening = text[: MAX_REFUSAL + 1].strip().replace("’", "'").casefold()
    return len(opening) <= MAX_REFUSAL and len(text) <= 2 * MAX_REFUSAL and opening.startswith(REFUSAL_OPENINGS)
