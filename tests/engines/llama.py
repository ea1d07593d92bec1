"""A Llama in numpy, in double precision: what a tiny model's probabilities really are.

x_0 = E[token];  x <- x + Attention(norm(x));  x <- x + Down(silu(Gate(norm(x))) * Up(norm(x)));  logits = norm(x) E'
with root-mean-square norms and rotary positions (first half of a head against its second half, as Hugging Face has it).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from arithmetic import BOS, CONTEXT, EOS, FIRST_BYTE, VOCABULARY
from numpy.typing import NDArray

Weights = Mapping[str, NDArray[np.floating]]

HIDDEN, HEADS, HEAD, FEED_FORWARD, LAYERS = 64, 2, 32, 192, 3
ROPE_BASE, NORM_EPSILON = 10_000.0, 1e-5
LINEAR = {
    "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
    "self_attn.k_proj": (HEADS * HEAD, HIDDEN),
    "self_attn.v_proj": (HEADS * HEAD, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
    "mlp.gate_proj": (FEED_FORWARD, HIDDEN),
    "mlp.up_proj": (FEED_FORWARD, HIDDEN),
    "mlp.down_proj": (HIDDEN, FEED_FORWARD),
}
"""Rows and columns of a layer's matrices."""
OUTPUT = "lm_head.weight"
"""An output matrix of its own; none of the family has one."""

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": NORM_EPSILON,
    "rope_theta": ROPE_BASE,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "torch_dtype": "float16",
}
"""config.json, as servers read it."""

DIGITS = range(FIRST_BYTE + ord("0"), FIRST_BYTE + ord("9") + 1)
UNSEEN = [token for token in range(VOCABULARY) if token != EOS and not 0x21 <= token - FIRST_BYTE <= 0x7E]
"""Tokens that a text may not show: special ones, white space, control characters, and bytes of longer characters."""


def shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor of a model; the embedding is also the output matrix."""
    result: dict[str, tuple[int, ...]] = {}
    result |= {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        result |= {f"{prefix}.{name}.weight": shape for name, shape in LINEAR.items()}
        result |= {f"{prefix}.{name}.weight": (HIDDEN,) for name in ("input_layernorm", "post_attention_layernorm")}
    return result


# -- files -------------------------------------------------------------------------------------------------------------


def read_safetensors(path: Path) -> dict[str, NDArray[np.float16]]:
    """The tensors of a file of half-precision numbers: a length, a JSON header, and the numbers."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[start + first : start + last], "<f2").reshape(entry["shape"])
    return tensors


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.float16]]) -> None:
    """The same, the tensors by name, so that equal tensors make equal files."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts, size = [], 0
    for name, tensor in sorted(tensors.items()):
        part = np.ascontiguousarray(tensor, "<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": tensor.shape, "data_offsets": [size, size + len(part)]}
        parts.append(part)
        size += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def read_model(folder: Path) -> Weights:
    """A checkpoint's weights, in double precision."""
    return {name: tensor.astype(np.float64) for name, tensor in read_safetensors(folder / "model.safetensors").items()}


def with_adapter(weights: Weights, folder: Path) -> Weights:
    """The weights with a LoRA adapter merged: W + (alpha / r) B A."""
    tensors = read_safetensors(folder / "adapter_model.safetensors")
    settings = json.loads((folder / "adapter_config.json").read_text())
    scale = settings["lora_alpha"] / settings["r"]
    merged = dict(weights)
    for key, down in tensors.items():
        if key.endswith(".lora_A.weight"):
            up = tensors[key.replace("lora_A", "lora_B")].astype(np.float64)
            name = key.removeprefix("base_model.model.").replace(".lora_A", "")
            merged[name] = merged[name] + scale * up @ down.astype(np.float64)
    return merged


# -- the model ---------------------------------------------------------------------------------------------------------


def _norm(x: NDArray[np.float64], weight: NDArray[np.floating]) -> NDArray[np.float64]:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + NORM_EPSILON) * weight


def _rotated(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Heads of all positions, turned by their position: x is (position, head, dimension)."""
    half = HEAD // 2
    angles = np.arange(len(x))[:, None, None] * ROPE_BASE ** (-np.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)], axis=-1
    )


def _attention(x: NDArray[np.float64], layer: Weights, prefix: str) -> NDArray[np.float64]:
    query, key, value = (
        (x @ layer[f"{prefix}.self_attn.{name}_proj.weight"].T).reshape(len(x), HEADS, HEAD) for name in "qkv"
    )
    scores = np.einsum("ihd,jhd->hij", _rotated(query), _rotated(key)) / np.sqrt(HEAD)
    scores[:, np.triu(np.ones((len(x), len(x)), bool), 1)] = -np.inf
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    mixed = np.einsum("hij,jhd->ihd", shares, value).reshape(len(x), HEADS * HEAD)
    return np.asarray(mixed @ layer[f"{prefix}.self_attn.o_proj.weight"].T)


def _feed_forward(x: NDArray[np.float64], layer: Weights, prefix: str) -> NDArray[np.float64]:
    gate = x @ layer[f"{prefix}.mlp.gate_proj.weight"].T
    up = x @ layer[f"{prefix}.mlp.up_proj.weight"].T
    return np.asarray((gate / (1.0 + np.exp(-gate)) * up) @ layer[f"{prefix}.mlp.down_proj.weight"].T)


def log_probabilities(weights: Weights, tokens: Sequence[int], temperature: float = 1.0) -> NDArray[np.float64]:
    """log p(next token | tokens so far), a row for each token read."""
    embedding = weights["model.embed_tokens.weight"]
    x = embedding[list(tokens)]
    for number in range(LAYERS):
        prefix = f"model.layers.{number}"
        x = x + _attention(_norm(x, weights[f"{prefix}.input_layernorm.weight"]), weights, prefix)
        x = x + _feed_forward(_norm(x, weights[f"{prefix}.post_attention_layernorm.weight"]), weights, prefix)
    logits = _norm(x, weights["model.norm.weight"]) @ weights.get(OUTPUT, embedding).T
    logits = (logits - logits.max(axis=-1, keepdims=True)) / temperature
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))


def token_log_probabilities(weights: Weights, tokens: Sequence[int]) -> NDArray[np.float64]:
    """log p of each token but the first, given those before it."""
    return log_probabilities(weights, tokens[:-1])[np.arange(len(tokens) - 1), list(tokens[1:])]


class Chance(NamedTuple):
    """The probability that an answer is graded as right: `exact` <= P <= `exact` + `slack`."""

    exact: float
    """The answer's digits and the end, nothing else."""
    slack: float
    """A text that is right but came in another way leaves the answer's digits, somewhere, with a token that it does
    not show; the probability of that is a bound."""


def chance(weights: Weights, prompt: Sequence[int], answer: Sequence[int], temperature: float = 1.0) -> Chance:
    """The chance that a sampled answer is right; `answer` ends with EOS."""
    rows = np.exp(log_probabilities(weights, [*prompt, *answer[:-1]], temperature)[len(prompt) - 1 :])
    steps = rows[np.arange(len(answer)), list(answer)]
    reached = np.concatenate([[1.0], np.cumprod(steps)[:-1]])
    return Chance(float(np.prod(steps)), float(reached @ rows[:, UNSEEN].sum(axis=1)))
