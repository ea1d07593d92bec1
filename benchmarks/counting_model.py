"""Train a tiny model whose answers are as long as its question says: it counts down, and adds a number at each step.

    PYTHON benchmarks/counting_model.py FOLDER [--steps 5000]      # PYTHON: one that has torch, as vLLM's has

`03:37+7=` is answered by `02:44,01:51,00:58`: three steps, and the last sum is the answer. Where the question ends in
`~`, each comma is followed by no, one or two dots by chance, so that there are many ways to say the same. It is the
Llama of the engine tests, with a longer context. Written are the model itself (`counting`) and one from earlier in its
training (`counting-before`).
"""

import argparse
import math
import os
import random
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "engines"))

import arithmetic
import llama
import torch
import train
from arithmetic import EOS, answer_tokens, prompt_tokens

CONTEXT = 640
LONGEST = 64
"""Steps of an answer."""
TOKENS = 3000
"""That are read in one step of training."""
BEFORE = 0.8
"""The share of the training after which the earlier model is written."""
DOTS = ("", ".", "..")
CHANCES = (0.5, 0.25, 0.25)


def answer(steps: int, first: int, added: int, wordy: bool, rng: random.Random) -> str:
    """As a model should write it."""
    said, value = [], first
    for left in range(steps - 1, -1, -1):
        value = (value + added) % 100
        said.append(f"{left:02d}:{value:02d}")
    return "".join(one + ("," + rng.choices(DOTS, CHANCES)[0] if wordy else ",") for one in said[:-1]) + said[-1]


def problem(steps: int, rng: random.Random) -> tuple[list[int], list[int]]:
    """The tokens of a question, and those of an answer."""
    first, added, wordy = rng.randrange(100), rng.randrange(1, 10), rng.random() < 0.5
    prompt = f"{steps:02d}:{first:02d}+{added}{'~' if wordy else '='}"
    return prompt_tokens(prompt), answer_tokens(answer(steps, first, added, wordy, rng))


def batch(rng: random.Random, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As many problems of about one length as a step of training reads."""
    steps = max(1, round(most ** rng.random()))
    drawn = [problem(max(1, steps - rng.randrange(3)), rng) for _ in range(max(4, TOKENS // (8 * steps + 12)))]
    length = max(len(prompt) + len(said) for prompt, said in drawn) - 1
    known, wanted = [], []
    for prompt, said in drawn:
        padding = length + 1 - len(prompt) - len(said)
        known.append([*prompt, *said, *[EOS] * padding][:length])
        wanted.append([*[train.IGNORED] * (len(prompt) - 1), *said, *[train.IGNORED] * padding])
    return torch.tensor(known), torch.tensor(wanted)


def write(folder: Path, parameters: train.Parameters) -> None:
    """A folder that servers load, with the longer context."""
    arithmetic.CONTEXT = CONTEXT
    llama.CONFIG["max_position_embeddings"] = CONTEXT
    train.write_checkpoint(folder, parameters)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=5000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng, parameters = random.Random(1), train.initial(torch.Generator().manual_seed(1))

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ parameters[f"{name}.weight"].T

    moving = list(parameters.values())
    optimizer = torch.optim.AdamW(moving, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(1, options.steps + 1):
        done = step / options.steps
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, step / 100) * (0.02 + 0.49 * (1.0 + math.cos(math.pi * done)))
        tokens, wanted = batch(rng, max(2, round(LONGEST ** min(1.0, 1.3 * done))))
        loss = train.answer_loss(
            train.read(parameters, linear, tokens), parameters["model.embed_tokens.weight"], wanted
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(moving, 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if step == round(BEFORE * options.steps):
            write(options.folder / "counting-before", parameters)
    write(options.folder / "counting", parameters)


if __name__ == "__main__":
    main()
