"""What the same seeds are worth between near copies of a model, on servers that draw by Gumbel-max.

vLLM adds noise that is keyed by seed, position and token to the scores of tokens, and takes the largest. Models with
one vocabulary that get the same prompt and seed share that noise. Here tiny trained models (arithmetic on characters;
short answers) are sampled that way: a model, its copies with rounded weights, neighbouring checkpoints of a training.

    python benchmarks/coupling.py [--quick] [--models FOLDER] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import random
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from same_trials import Values, compared, variance_text
from tables import Check, arguments, conclude, markdown

from scorio.moments import FloatArray, IntArray

Model = Mapping[str, FloatArray]

HEADS, LAYERS, LONGEST = 2, 3, 6
BEGIN, END, ANSWER = 0, 1, 2
TOKENS = {**{str(digit): 18 + digit for digit in range(10)}, "+": 13, "-": 15, "*": 12, "=": 31, "?": 33}
GOAL = 0.2
HEADER = ("models", "scores", "same seeds", "own seeds", "trials over those without")
EXPLAINED = """\
"Same seeds" is the variance of the difference of two models in that of independent ones (`scorio.sinf.coupling`), with
its standard error were they independent: the trials that the difference needs, over those without shared seeds. "Own
seeds" is the same where each model has seeds of its own. Decisions do not use it."""


def load(folder: Path) -> Model:
    """The weights of a folder: a safetensors file of float32."""
    data = (folder / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    head, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    return {
        name.removeprefix("model."): np.frombuffer(body[slice(*entry["data_offsets"])], np.float32).reshape(
            entry["shape"]
        )
        for name, entry in head.items()
        if name != "__metadata__"
    }


def rounded(model: Model, bits: int) -> Model:
    """A copy with its matrices rounded to so many bits, row by row."""
    result = {}
    for name, weights in model.items():
        step = np.abs(weights).max(axis=-1, keepdims=True) / (2 ** (bits - 1) - 1)
        result[name] = np.round(weights / step) * step if weights.ndim == 2 else weights
    return result


def scores(model: Model, tokens: IntArray) -> FloatArray:
    """Of the next token after each row of tokens: a Llama's forward pass."""
    x = model["embed_tokens.weight"][tokens]
    rows, length, width = x.shape
    size = width // HEADS
    angle = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, size, 2) / size)
    turn = np.exp(1j * angle)
    ahead = np.triu(np.full((length, length), -np.inf), 1)

    def heads(y: FloatArray) -> FloatArray:
        return y.reshape(rows, length, HEADS, size).transpose(0, 2, 1, 3)

    def turned(y: FloatArray) -> FloatArray:
        both = (y[..., : size // 2] + 1j * y[..., size // 2 :]) * turn
        return np.concatenate([both.real, both.imag], axis=-1)

    for layer in range(LAYERS):
        parameters = {
            name.split(".", 2)[2]: weights for name, weights in model.items() if name.startswith(f"layers.{layer}.")
        }
        y = normed(x, parameters["input_layernorm.weight"])
        q, k, v = (heads(y @ parameters[f"self_attn.{projection}_proj.weight"].T) for projection in "qkv")
        seen = turned(q) @ turned(k).transpose(0, 1, 3, 2) / np.sqrt(size) + ahead
        seen = np.exp(seen - seen.max(axis=-1, keepdims=True))
        mixed = (seen / seen.sum(axis=-1, keepdims=True)) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(rows, length, width) @ parameters["self_attn.o_proj.weight"].T
        y = normed(x, parameters["post_attention_layernorm.weight"])
        gate = y @ parameters["mlp.gate_proj.weight"].T
        x = (
            x
            + (gate / (1.0 + np.exp(-gate)) * (y @ parameters["mlp.up_proj.weight"].T))
            @ parameters["mlp.down_proj.weight"].T
        )
    return np.asarray(normed(x[:, -1], model["norm.weight"]) @ model["embed_tokens.weight"].T)


def normed(x: FloatArray, gain: FloatArray) -> FloatArray:
    """Over the root of the mean square."""
    return np.asarray(x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-5) * gain)


def questions(number: int = 30, seed: int = 11) -> list[tuple[str, str]]:
    """Sums, differences and products, with their answers."""
    rng, pairs = random.Random(seed), []
    for place in range(number):
        limit = 10 if place >= 26 else 100
        a, b = rng.randrange(limit), rng.randrange(limit)
        if place < 18:
            pairs.append((f"{a}+{b}=?", str(a + b)))
        elif place < 26:
            pairs.append((f"{max(a, b)}-{min(a, b)}=?", str(abs(a - b))))
        else:
            pairs.append((f"{a}*{b}=?", str(a * b)))
    return pairs


def right(model: Model, question: str, answer: str, seeds: IntArray, temperature: float) -> FloatArray:
    """Whether the answer under each seed is right."""
    tokens = np.tile([BEGIN, *(TOKENS[char] for char in question), ANSWER], (len(seeds), 1))
    asked = tokens.shape[1]
    noise = np.stack([np.random.default_rng(seed).gumbel(size=(LONGEST, 320)) for seed in seeds.tolist()])
    for step in range(LONGEST):
        drawn = (scores(model, tokens) / temperature + noise[:, step]).argmax(axis=1)
        tokens = np.concatenate([tokens, drawn[:, None]], axis=1)
    expected = [*(TOKENS[char] for char in answer), END]
    return np.asarray((tokens[:, asked : asked + len(expected)] == expected).all(axis=1), dtype=float)


def outcomes(model: Model, trials: int, first: int, temperature: float) -> dict[str, dict[int, float]]:
    """By question and trial."""
    asked = questions()
    return {
        question: dict(
            enumerate(right(model, question, answer, first + 1000 * at + np.arange(trials), temperature).tolist())
        )
        for at, (question, answer) in enumerate(asked)
    }


def score(by_question: Mapping[str, Mapping[int, float]]) -> float:
    """The mean over all trials."""
    return float(np.mean([list(row.values()) for row in by_question.values()]))


def values(by_question: Mapping[str, Mapping[int, float]]) -> Values:
    """The same by the number of each question."""
    return {(at, trial): value for at, row in enumerate(by_question.values()) for trial, value in row.items()}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    default = Path(__file__).parents[2] / "shared" / "engine"
    parser.add_argument("--models", type=Path, default=default, help="the folder of the trained models")
    options = parser.parse_args()
    trials, temperatures = (30, (1.0,)) if options.quick else (60, (0.7, 1.0))
    folder = options.models / "models_b"
    if not folder.is_dir():
        parser.error(f"{folder} is not there; --models names the folder of the trained models")
    original = load(folder / "calc-1000")
    copies = {f"int{bits}": rounded(original, bits) for bits in (8, 6, 5, 4)}
    copies |= {name: load(folder / name) for name in ("calc-1250", "calc-750")}
    rows, checks = [], []
    for temperature in temperatures:
        base = outcomes(original, trials, 0, temperature)
        for name, copy in copies.items():
            paired = outcomes(copy, trials, 0, temperature)
            other = outcomes(copy, trials, 10**6, temperature)
            same, apart = (compared(values(base), values(run)) for run in (paired, other))
            label = f"calc-1000, {name}, temperature {temperature}"
            rows.append(
                (
                    label,
                    f"{score(base):.3f}, {score(paired):.3f}",
                    variance_text(same),
                    variance_text(apart),
                    same.variance,
                )
            )
            print(*rows[-1], flush=True)
            if name == "int8":
                check = f"int8 copy, temperature {temperature}: trials over those without"
                checks.append(Check(check, round(same.variance, 3), f"<= {GOAL}", same.variance <= GOAL))
    title = "The same seeds for near copies"
    conclude(options, title, EXPLAINED, f"{trials} trials a question", markdown(HEADER, rows), checks)


if __name__ == "__main__":
    main()
