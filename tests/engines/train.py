"""Train the family of tiny models that the engine tests rank, and write down what their scores really are.

    python tests/engines/train.py [FOLDER]      # default: the folder `family` beside this file

Needs torch, which the engines' virtual environment has (see `run`), one thread and about two minutes. The same torch on
the same kind of CPU writes the same bytes again.

A Llama of 170 thousand parameters learns arithmetic, byte by byte. `CHECKPOINTS` are moments of its training, from a
model that knows little to one that knows most, so that their scores differ. `ADAPTERS` are LoRA adapters of the
checkpoint `BASE`: moments of a second training that moves only low-rank matrices, so that one server with one base can
serve several models; the first changes nothing. All are stored in half precision, and what is stored is the model: a
server that computes in single precision has exactly these weights. `exact.json` has the probability that a sampled
answer is right, for every model and question, computed in double precision by `llama.py`.
"""

import json
import math
import os
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as nn
from arithmetic import BOS, EOS, answer_tokens, prompt_tokens, questions, random_problem, write_tokenizer
from llama import (
    CONFIG,
    HEAD,
    HEADS,
    LAYERS,
    LINEAR,
    NORM_EPSILON,
    ROPE_BASE,
    UNSEEN,
    chance,
    read_model,
    shapes,
    with_adapter,
    write_safetensors,
)
from torch import Tensor

FAMILY = Path(__file__).with_name("family")
CHECKPOINTS = (600, 900, 1000, 1200, 1400)
BASE = 900
ADAPTERS = (0, 150, 250, 500)
"""Steps after which a checkpoint or an adapter is written."""

BATCH, LENGTH = 128, 11
"""Problems a step, and tokens that are read of each: <|bos|>, six of the prompt, <|answer|>, and up to three digits."""
RANK = 8
IGNORED = -100
UNSEEN_PRICE = 20.0
TRAPS = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True, "eos_token_id": EOS, "bos_token_id": BOS}
"""generation_config.json, as many published models have it: a server takes these unless it is told otherwise."""

Parameters = dict[str, Tensor]
Linear = Callable[[Tensor, str], Tensor]


# -- the model, as in llama.py, for batches and with gradients ---------------------------------------------------------


def initial(generator: torch.Generator) -> Parameters:
    """Random matrices; norms are ones."""
    parameters = {}
    for name, shape in shapes().items():
        tensor = torch.ones(shape)
        if len(shape) == 2:
            tensor = torch.randn(shape, generator=generator) * 0.02
        parameters[name] = tensor.requires_grad_()
    return parameters


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + NORM_EPSILON) * weight


def rotations(length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines for every position and half a head."""
    angles = torch.arange(length)[:, None] * ROPE_BASE ** (-torch.arange(HEAD // 2) / (HEAD // 2))
    return angles.cos(), angles.sin()


def rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    cos, sin = turn
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def read(parameters: Mapping[str, Tensor], linear: Linear, tokens: Tensor) -> Tensor:
    """What the model makes of a batch of texts of one length: times the embedding, these are its logits."""
    turn = rotations(tokens.shape[1])
    x = nn.embedding(tokens, parameters["model.embed_tokens.weight"])
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        y = norm(x, parameters[f"{prefix}.input_layernorm.weight"])
        query, key, value = (
            linear(y, f"{prefix}.self_attn.{name}_proj").unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for name in "qkv"
        )
        mixed = nn.scaled_dot_product_attention(rotated(query, turn), rotated(key, turn), value, is_causal=True)
        x = x + linear(mixed.transpose(1, 2).flatten(-2), f"{prefix}.self_attn.o_proj")
        y = norm(x, parameters[f"{prefix}.post_attention_layernorm.weight"])
        gated = nn.silu(linear(y, f"{prefix}.mlp.gate_proj")) * linear(y, f"{prefix}.mlp.up_proj")
        x = x + linear(gated, f"{prefix}.mlp.down_proj")
    return norm(x, parameters["model.norm.weight"])


# -- training ----------------------------------------------------------------------------------------------------------


def batch(rng: random.Random) -> tuple[Tensor, Tensor]:
    """Problems as tokens, and what is to come after each of them: only the answer is learned."""
    inputs, targets = [], []
    for _ in range(BATCH):
        drawn = random_problem(rng)
        prompt, answer = prompt_tokens(drawn.prompt), answer_tokens(drawn.answer)
        tokens = [*prompt, *answer]
        padding = LENGTH + 1 - len(tokens)
        inputs.append([*tokens, *[EOS] * padding][:LENGTH])
        targets.append([*[IGNORED] * (len(prompt) - 1), *answer, *[IGNORED] * padding])
    return torch.tensor(inputs), torch.tensor(targets)


def train(
    loss_of: Callable[[Tensor, Tensor], Tensor],
    moving: list[Tensor],
    rng: random.Random,
    rate: float,
    steps: int,
    after: Callable[[int], None],
) -> None:
    """AdamW with a warm-up and a cosine; `after` is called after every step, and before the first."""
    optimizer = torch.optim.AdamW(moving, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    after(0)
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / 100) * (0.1 + 0.45 * (1.0 + math.cos(math.pi * step / steps)))
        tokens, targets = batch(rng)
        loss = loss_of(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(moving, 1.0)
        optimizer.step()
        after(step)


def answer_loss(states: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the answers, and a price on tokens that a text does not show; the price moves embeddings only.

    Such tokens are what could make a text right in another way than the one whose probability is computed.
    """
    mask = targets != IGNORED
    rows = nn.log_softmax(states[mask] @ embedding.T, dim=-1)
    unseen = nn.softmax(states[mask].detach() @ embedding.T, dim=-1)[:, UNSEEN].sum(dim=-1)
    return nn.nll_loss(rows, targets[mask]) + UNSEEN_PRICE * unseen.mean()


def train_checkpoints(folder: Path) -> None:
    """The whole model."""
    parameters = initial(torch.Generator().manual_seed(1))

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ parameters[f"{name}.weight"].T

    def after(step: int) -> None:
        if step in CHECKPOINTS:
            write_checkpoint(folder / checkpoint_name(step), parameters)

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        return answer_loss(read(parameters, linear, tokens), parameters["model.embed_tokens.weight"], targets)

    train(loss, list(parameters.values()), random.Random(1), 4e-3, max(CHECKPOINTS), after)


def train_adapters(folder: Path) -> None:
    """Low-rank matrices beside the frozen base: y = W x + B A x."""
    weights = read_model(folder / checkpoint_name(BASE))
    frozen = {name: torch.tensor(value, dtype=torch.float32) for name, value in weights.items()}
    generator, moving = torch.Generator().manual_seed(2), Parameters()
    for layer in range(LAYERS):
        for name, (rows, columns) in LINEAR.items():
            key = f"model.layers.{layer}.{name}"
            moving[f"{key}.lora_A"] = torch.randn(RANK, columns, generator=generator) / math.sqrt(columns)
            moving[f"{key}.lora_B"] = torch.zeros(rows, RANK)
    for tensor in moving.values():
        tensor.requires_grad_()

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ frozen[f"{name}.weight"].T + x @ moving[f"{name}.lora_A"].T @ moving[f"{name}.lora_B"].T

    def after(step: int) -> None:
        if step in ADAPTERS:
            write_adapter(folder / adapter_name(step), moving)

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        return answer_loss(read(frozen, linear, tokens), frozen["model.embed_tokens.weight"], targets)

    train(loss, list(moving.values()), random.Random(2), 1e-2, max(ADAPTERS), after)


# -- files -------------------------------------------------------------------------------------------------------------


def checkpoint_name(step: int) -> str:
    return f"abacus-{step}"


def adapter_name(step: int) -> str:
    return f"{checkpoint_name(BASE)}-tuned-{step}"


def write_checkpoint(folder: Path, parameters: Parameters) -> None:
    """A folder that servers load as a model."""
    folder.mkdir(parents=True, exist_ok=True)
    halves = {name: tensor.detach().half().numpy() for name, tensor in parameters.items()}
    write_safetensors(folder / "model.safetensors", halves)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(TRAPS, indent=1) + "\n")
    write_tokenizer(folder)


def write_adapter(folder: Path, moving: Parameters) -> None:
    """A folder that servers load as a LoRA adapter, in the format of PEFT."""
    folder.mkdir(parents=True, exist_ok=True)
    halves = {f"base_model.model.{name}.weight": tensor.detach().half().numpy() for name, tensor in moving.items()}
    write_safetensors(folder / "adapter_model.safetensors", halves)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": checkpoint_name(BASE),
        "r": RANK,
        "lora_alpha": RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": [name.partition(".")[2] for name in LINEAR],
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def write_exact(folder: Path) -> None:
    """`exact.json`: for every model the chance of a right answer to each question, in the order of the questions."""
    base = read_model(folder / checkpoint_name(BASE))
    models = {checkpoint_name(step): read_model(folder / checkpoint_name(step)) for step in CHECKPOINTS}
    models |= {adapter_name(step): with_adapter(base, folder / adapter_name(step)) for step in ADAPTERS}
    exact = {}
    for name, weights in models.items():
        chances = [
            chance(weights, prompt_tokens(problem.prompt), answer_tokens(problem.answer)) for problem in questions()
        ]
        exact[name] = {
            problem.prompt: round(result.exact, 6) for problem, result in zip(questions(), chances, strict=True)
        }
        mean = sum(result.exact for result in chances) / len(chances)
        print(f"{name:24} mean {mean:.4f}   slack at most {max(result.slack for result in chances):.1e}")
    (folder / "exact.json").write_text(json.dumps(exact, indent=1) + "\n")


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FAMILY
    train_checkpoints(folder)
    train_adapters(folder)
    write_exact(folder)


if __name__ == "__main__":
    main()
