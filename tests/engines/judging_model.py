"""A tiny model that can be asked about answers: it knows nothing of them, and what it says of each is known exactly.

It reads as one of the family does. Its output matrix is another: what were digits are the labels of a verifier and the
quotation mark, so that a label has a chance at the answer slot, and a text in JSON an end.
"""

from collections.abc import Mapping

import numpy as np
from arithmetic import ANSWER, BOS, EOS, FIRST_BYTE, text_tokens
from family import weights
from llama import OUTPUT, Weights, log_probabilities

from adaptive_eval.graders.transcript import Transcript

CONTEXT = 1536
"""Tokens that it reads; a request has some 900, one for each byte."""
SHARPNESS = 0.35
"""Of the family's own: it is surer of the next token than a verifier would be."""
IN_PLACE_OF = {"A": "0", "B": "2", "C": "3", '"': "4"}
"""The two change places in the output matrix."""


def judging_weights(name: str) -> Weights:
    """Those of a member of the family that says labels where it would say digits."""
    tensors = dict(weights(name))
    output = SHARPNESS * tensors["model.embed_tokens.weight"]
    for ours, theirs in IN_PLACE_OF.items():
        pair = [FIRST_BYTE + ord(ours), FIRST_BYTE + ord(theirs)]
        output[pair] = output[pair[::-1]]
    return {**tensors, OUTPUT: np.asarray(output)}


def slot_of(model: Weights, sent: Transcript) -> Mapping[str, float]:
    """The log-probability of each of the likeliest 20 tokens where the reply to a request begins."""
    tokens = [BOS, *text_tokens(sent.system + sent.user), ANSWER]
    likely = log_probabilities(model, tokens)[-1]
    shown = np.argsort(-likely)[:20]
    return {chr(token - FIRST_BYTE): float(likely[token]) for token in shown if token > EOS + 1}
