"""What the same seeds are worth between near copies of a model, on servers that draw by Gumbel-max.

    python benchmarks/coupling.py [--quick] [--models FOLDER] [--json PATH]

vLLM adds noise that is keyed by seed, position and token to the scores of tokens, and takes the largest. Models with
one vocabulary that get the same prompt and seed share that noise. Here tiny trained models (arithmetic on characters;
short answers) are sampled that way: a model, its copies with rounded weights, neighbouring checkpoints of a training.

First the variance of the difference of two models in that of independent ones (`scorio.sinf.coupling`), with its
standard error were they independent. Then whole runs with `trials.seeds: coupled`: a gate that asks whether the copy is
less than two points worse, with at most 400 trials a question, and equal models, with at most 80, which are made of a
model and its copy by giving each answer of a trial to one or the other by chance. A run draws each trial from the
sampled answers with all models' answers to it; "own" draws each model's apart. "Coupled, own": the models draw with
random numbers of their own, and `trials.seeds: coupled` is set all the same. "Over own seeds" are the trials in those
of the same runs with `seeds: hashed`.
"""

import json
import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import SHARED, Check, arguments, at_most, between, markdown, publish

from adaptive_eval.core import Baseline, Bench, Controller, Plan, Trials
from adaptive_eval.core.objectives import Gate
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Margin
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Verdict
from adaptive_eval.simulate.worlds import BINARY
from adaptive_eval.study.drive import drive
from scorio.moments import FloatArray, IntArray
from scorio.sinf import coupling

Model = Mapping[str, FloatArray]
Outcomes = NDArray[np.uint8]

HEADS, LAYERS, LONGEST = 2, 3, 6
BEGIN, END, ANSWER = 0, 1, 2
TOKENS = {**{str(digit): 18 + digit for digit in range(10)}, "+": 13, "-": 15, "*": 12, "=": 31, "?": 33}
QUESTIONS = 30
DEPTH = 4
"""Times the horizon: weighted questions may have more than it."""
DELTA = 0.02
GOAL, MOST_CALLED, MOST_WRONG = 0.2, 0.10, 0.05


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


def questions(seed: int = 11) -> list[tuple[str, str]]:
    """Sums, differences and products, with their answers."""
    rng, pairs = random.Random(seed), []
    for place in range(QUESTIONS):
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


def outcomes(model: Model, trials: int, temperature: float) -> Outcomes:
    """(M, N): whether the answers under the first seeds are right."""
    asked, first = questions(), 1000 * np.arange(QUESTIONS)
    rows = [right(model, *pair, seed + np.arange(trials), temperature) for pair, seed in zip(asked, first, strict=True)]
    return np.array(rows, dtype=np.uint8)


def variance_row(name: str, models: tuple[Model, Model], trials: int, temperature: float) -> tuple[str, float, str]:
    """The variance of the difference of two models with the same seeds, in that of independent ones."""
    first, second = (outcomes(model, trials, temperature).ravel().astype(float) for model in models)
    result = coupling(np.repeat(np.arange(QUESTIONS), trials), first, second)
    return name, temperature, f"{result.variance:.2f} +- {result.sigma:.2f}"


# -- whole runs ------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """Of one run."""

    trials: float
    decided: float
    wrong: float


def drawn(pool: Outcomes, cap: int, shared: bool, equal: bool, rng: np.random.Generator) -> Outcomes:
    """Outcomes (2, M, N) of a run, from those (2, M, n) of the pool."""
    shape, question = (QUESTIONS, DEPTH * cap), np.arange(QUESTIONS)[:, None]
    trials = [rng.integers(0, pool.shape[2], shape) for _ in range(2)]
    if shared:
        trials[1] = trials[0]
    if not equal:
        return np.stack([pool[model][question, trials[model]] for model in (0, 1)])
    which = rng.integers(0, 2, (2, *shape))
    if shared:
        which[1] = 1 - which[0]
    return np.stack([pool[which[model], question, trials[model]] for model in (0, 1)])


def carried_out(plan: Plan, pool: Outcomes, shared: bool, equal: bool, seed: int) -> Found:
    """A whole run."""
    table = drawn(pool, plan.trials.max, shared, equal, np.random.default_rng(seed))
    tape = Tape(iter(np.moveaxis(table, 2, 0)), BINARY)
    controller = drive(Controller(plan, keep_looks=False), tape)
    look = controller.latest_look()
    assert look is not None
    (pair,) = look.comparisons
    given = plan.objective.margin.delta if plan.objective.margin else 0.0
    behind = float(np.subtract(*pool.mean(axis=(1, 2))))
    decided = pair.verdict is Verdict.RESOLVED
    wrong = decided and (equal or (1 if pair.first == 1 else -1) != np.sign(given - behind))
    return Found(controller.trials.sum(), decided, wrong)


def run_rows(name: str, pool: Outcomes, runs: int, equal: bool) -> Iterator[tuple[tuple[object, ...], list[Check]]]:
    """Whole runs of a model and its copy, with their goals: with seeds of their own, coupled, and coupled where nothing
    is shared."""
    trials, objective = (
        (Trials(min=4, max=80), Baseline(0)) if equal else (Trials(min=4, max=400), Gate(Margin(0, DELTA)))
    )
    bench, rule = Bench(2, QUESTIONS, BINARY), Sequential(start=trials.min / trials.max)
    plan = Plan(bench, objective=objective, rule=rule, trials=trials)
    asked, own = "equal models" if equal else "a gate", 1.0
    kinds = (("own", False, False), ("coupled, shared", True, True), ("coupled, own", True, False))
    for seeds, coupled, shared in kinds:
        chosen = replace(plan, coupled=coupled)
        ended = [carried_out(chosen, pool, shared, equal, seed) for seed in range(runs)]
        used, decided, wrong = np.mean(ended, axis=0).tolist()
        own = used if seeds == "own" else own
        check, ratio = f"{name}, {asked}, {seeds}", used / own
        checks = [at_most(f"{check}: wrong", wrong, MOST_CALLED if equal else MOST_WRONG)]
        if not equal and name == "int8" and seeds == "coupled, shared":
            checks.append(at_most(f"{check}: trials", ratio, GOAL))
        if seeds == "coupled, own":
            checks.append(between(f"{check}: trials over own seeds", ratio, 0.95, 1.05))
        yield (name, asked, seeds, f"{used:,.0f}", f"{ratio:.2f}", f"{decided:.1%}", f"{wrong:.1%}"), checks


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--models", type=Path, default=SHARED / "engine" / "models_b", help="the trained models")
    options = parser.parse_args()
    trials, answers, gates, ties = (30, 12, 2, 6) if options.quick else (60, 100, 40, 100)
    if not options.models.is_dir():
        parser.error(f"{options.models} is not there; --models names the folder of the trained models")
    original = load(options.models / "calc-1000")
    copies = {f"int{bits}": rounded(original, bits) for bits in (8, 6, 4)}
    others = copies | {"calc-1250": load(options.models / "calc-1250")}
    variances = [
        variance_row(name, (original, other), trials, temperature)
        for temperature in ((1.0,) if options.quick else (0.7, 1.0))
        for name, other in others.items()
    ]
    pools = {name: outcomes(model, answers, 0.7) for name, model in {"original": original, **copies}.items()}
    rows, checks = list[tuple[object, ...]](), list[Check]()
    for equal, runs in ((False, gates), (True, ties)):
        for name in copies:
            for row, its_checks in run_rows(name, np.stack([pools["original"], pools[name]]), runs, equal):
                rows.append(row)
                checks += its_checks
    publish(
        options,
        "The same seeds for near copies",
        __doc__,
        f"{trials} trials a question; whole runs: {answers} answers, {gates} runs of a gate, {ties} of equal models.",
        markdown(("copy", "temperature", "variance over independent"), variances),
        markdown(("copy", "asked for", "seeds", "trials", "over own seeds", "decided", "wrongly"), rows),
        checks=checks,
    )


if __name__ == "__main__":
    main()
