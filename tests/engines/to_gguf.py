"""A checkpoint as a GGUF file, which llama.cpp loads: the same numbers, in single precision.

GGUF 3: "GGUF", version, numbers of tensors and of values, the values by key, the tensors' names, shapes and places, and
their data on 32-byte boundaries. A shape is written innermost first.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from arithmetic import BOS, CHAT_TEMPLATE, CONTEXT, EOS, FIRST_BYTE, VOCABULARY, byte_symbols, vocabulary
from llama import FEED_FORWARD, HEAD, HEADS, HIDDEN, LAYERS, NORM_EPSILON, OUTPUT, ROPE_BASE, Weights, read_model
from numpy.typing import NDArray

Value = bool | int | float | str | Sequence[str] | Sequence[int]

ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
NORMAL, CONTROL = 1, 3
"""Kinds of tokens."""

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    """A value with its type before it."""
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    texts = [item for item in value if isinstance(item, str)]
    if texts:
        return struct.pack("<IIQ", ARRAY, STRING, len(texts)) + b"".join(map(_text, texts))
    return struct.pack(f"<IIQ{len(value)}i", ARRAY, INT32, len(value), *value)


def _values(name: str, context: int) -> dict[str, Value]:
    """What llama.cpp must know of the model and its tokens."""
    symbols = byte_symbols()
    return {
        "general.architecture": "llama",
        "general.name": name,
        "general.file_type": 0,
        "llama.context_length": context,
        "llama.embedding_length": HIDDEN,
        "llama.block_count": LAYERS,
        "llama.feed_forward_length": FEED_FORWARD,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS,
        "llama.attention.layer_norm_rms_epsilon": NORM_EPSILON,
        "llama.rope.dimension_count": HEAD,
        "llama.rope.freq_base": ROPE_BASE,
        "llama.vocab_size": VOCABULARY,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": vocabulary(),
        "tokenizer.ggml.token_type": [CONTROL if token < FIRST_BYTE else NORMAL for token in range(VOCABULARY)],
        # llama.cpp wants one merge at least: of two bytes that no UTF-8 text has
        "tokenizer.ggml.merges": [f"{symbols[0xFE]} {symbols[0xFF]}"],
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _interleaved(matrix: NDArray[np.floating]) -> NDArray[np.floating]:
    """Rows of queries or keys in llama.cpp's order, which turns neighbours, not halves, against each other."""
    return matrix.reshape(HEADS, 2, HEAD // 2, -1).swapaxes(1, 2).reshape(matrix.shape)


def _tensors(weights: Weights) -> dict[str, NDArray[np.float32]]:
    tensors = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    for layer in range(LAYERS):
        for theirs, ours in NAMES.items():
            tensor = weights[f"model.layers.{layer}.{theirs}.weight"]
            turned = ours in ("attn_q", "attn_k")
            tensors[f"blk.{layer}.{ours}.weight"] = _interleaved(tensor) if turned else tensor
    if OUTPUT in weights:
        tensors["output.weight"] = weights[OUTPUT]
    return {name: np.ascontiguousarray(tensor, "<f4") for name, tensor in tensors.items()}


def _padding(size: int) -> bytes:
    return b"\0" * (-size % ALIGNMENT)


def gguf(values: Mapping[str, Value], tensors: Mapping[str, NDArray[np.float32]]) -> bytes:
    """The whole file."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(_text(key) + _value(value) for key, value in values.items())
    data = b""
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += tensor.tobytes() + _padding(tensor.nbytes)
    return head + _padding(len(head)) + data


def convert(folder: Path, path: Path) -> Path:
    """Write the checkpoint in `folder` as a GGUF file."""
    return convert_weights(folder.name, read_model(folder), path)


def convert_weights(name: str, weights: Weights, path: Path, context: int = CONTEXT) -> Path:
    """Write the weights of a model as a GGUF file: of one that an adapter is merged into, too."""
    path.write_bytes(gguf(_values(name, context), _tensors(weights)))
    return path
