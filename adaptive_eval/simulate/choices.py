"""An answer as a simulated server sends it: its text up to the limits, and the log-probability of each token."""

import re
from dataclasses import dataclass
from math import log

from adaptive_eval.simulate.answering import DrawnAnswer, hashed_integers, unit_float

_WORD = re.compile(r"\S+\s*")


@dataclass(frozen=True, slots=True)
class SimulatedChoice:
    """One answer as it is sent; a word is a token."""

    text: str
    finish_reason: str
    seconds: float
    noise: int
    slot: tuple[tuple[str, float], ...] = ()
    """Likeliest first tokens with log-probabilities, in falling order."""
    scored: bool = True
    """Whether log-probabilities are given on request."""
    bits: float | None = None
    """Mean bits per token, if defined."""

    @property
    def tokens(self) -> int:
        return self.text.count(" ") + 1 if self.text else 0


def cut_short(answer: DrawnAnswer, limit: int | None, stop: object) -> SimulatedChoice:
    """An answer cut by its limit on tokens and by stop sequences."""
    text, reason = answer.text, "length" if answer.cut_off else "stop"
    sequences = stop if isinstance(stop, list) else [stop]
    for sequence in sequences:
        if isinstance(sequence, str) and sequence:
            text = text.partition(sequence)[0]
    if limit is not None and text.count(" ") + 1 > limit:
        text, reason = " ".join(text.split(" ")[:limit]), "length"
    return SimulatedChoice(text, reason, answer.seconds, answer.noise, bits=answer.bits)


def split_tokens(text: str) -> list[str]:
    """The tokens of a text."""
    return _WORD.findall(text)


def draw_logprobs(noise: int, length: int, bits: float | None = None) -> list[float]:
    """Log-probabilities -u/2 with u uniform, which depend on the answer only; eight to a hash. With `bits` they are
    stretched to so many bits per token."""
    values: list[float] = []
    for block in range((length + 7) // 8):
        values += [-0.5 * unit_float(number) for number in hashed_integers(8, "logprob", noise, block)]
    values = values[:length]
    if bits is None or not values:
        return values
    stretch = -bits * log(2.0) * length / sum(values)
    return [stretch * value for value in values]


def draw_prompt_logprobs(prompt: str, bits: float | None = None) -> list[float | None]:
    """Log-probabilities of a prompt's tokens; the first has none, since nothing precedes it."""
    words = len(split_tokens(prompt))
    if not words:
        return []
    noise = hashed_integers(1, "prompt", prompt)[0]
    return [None, *draw_logprobs(noise, words)[1:]] if bits is None else [None, *draw_logprobs(noise, words - 1, bits)]
