"""What the same seeds are worth on a real vLLM server, for answers of growing length.

python benchmarks/coupled_lengths.py --models FOLDER [--trials 30] [--quick] [--json PATH] [--markdown PATH]
"""

import json
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from same_trials import Values, compared, told
from tables import Check, arguments, conclude, markdown

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "tests" / "engines")]

from engine_runs import Finished, Workplace, read  # noqa: E402
from engine_servers import VLLM_ENVIRONMENT, VLLM_PYTHON, require  # noqa: E402
from llama import read_safetensors, write_safetensors  # noqa: E402

ORIGINAL, EARLIER = "counting", "counting-before"
BITS = (8, 6, 4)
LENGTHS = (1, 4, 16, 64)
KINDS = {"plain": "=", "wordy": "~"}
QUESTIONS = 12
"""Of each kind and length."""
SIDE_BY_SIDE = 64
COMMAND = [str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", "{port}"]
COMMAND += ["--dtype", "float32", "--enforce-eager", "--max-num-seqs", str(SIDE_BY_SIDE), "--max-model-len", "640"]
# with less memory requests are preempted, and vLLM cannot take a draw back on a CPU
COMMAND += ["--kv-cache-memory-bytes", "256M", "--max-num-batched-tokens", "8192"]
HEADER = ("answers", "steps", "tokens", "models", "scores", "same answers", "same seeds", "own seeds")

EXPLAINED = """\
vLLM keeps a random generator for each request that has a seed, and takes one draw of noise from it for each token: the
noise of a token depends on the seed and on its position alone. Two models that have said something else may still draw
alike afterwards, unless one of them has said more: then each of its words meets other noise. `counting_model.py` trains
the model, whose answers have as many steps as the question asks for. In plain answers every step has six tokens; in
wordy ones each comma is followed by no, one or two dots by chance.

Each model is a server of its own, started by a run that asks all of them the same number of trials with the same seeds
(`seeds: consecutive`). Variances are those of `scorio.sinf.coupling`, by questions of one kind; for own seeds each
trial of one model is set beside the next trial of the other.

"Same answers" is the share of trials whose text is the same to the last letter; a variance is that of the difference of
the two models, over that of independent ones: the trials that it takes, over those without shared seeds."""

Group = tuple[str, int]
"""Which kind of answer, and how many steps it has."""


class Answer(NamedTuple):
    """What a model wrote, and whether it was right."""

    text: str
    tokens: int
    right: float


Answers = dict[tuple[int, int], Answer]
"""By the number of a question, and the trial."""


def rounded(folder: Path, bits: int, to: Path) -> None:
    """A copy of a model with its matrices rounded to so many bits, row by row."""
    shutil.copytree(folder, to)
    found = {}
    for name, half in read_safetensors(folder / "model.safetensors").items():
        weights = half.astype(np.float32)
        step = np.abs(weights).max(axis=-1, keepdims=True) / (2 ** (bits - 1) - 1)
        found[name] = (np.round(weights / step) * step if weights.ndim == 2 else weights).astype(np.float16)
    write_safetensors(to / "model.safetensors", found)


def questions(lengths: Sequence[int]) -> dict[str, tuple[Group, str]]:
    """By prompt: of which group it is, and its answer."""
    rng, found = random.Random("counting"), {}
    for kind, sign in KINDS.items():
        for steps in lengths:
            for _ in range(QUESTIONS):
                first, added = rng.randrange(100), rng.randrange(1, 10)
                right = f"{(first + steps * added) % 100:02d}"
                found[f"{steps:02d}:{first:02d}+{added}{sign}"] = ((kind, steps), right)
    return found


def ask(folder: Path, models: Mapping[str, Path], asked: Mapping[str, tuple[Group, str]], trials: int) -> Finished:
    """One run: every model on a server of its own, one after the other."""
    workplace = Workplace(folder)
    rows = [{"id": prompt, "prompt": prompt, "answer": right} for prompt, (_, right) in asked.items()]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    served = [
        {
            "name": name,
            "launch": {
                "command": [*COMMAND, "--model", str(path), "--served-model-name", name],
                "env": VLLM_ENVIRONMENT,
                "exclusive": "cpu0",
                "timeout": 900,
            },
        }
        for name, path in models.items()
    ]
    config = workplace.configure(
        "lengths",
        served,
        trials={"min": trials, "max": trials, "seeds": "consecutive"},
        sampling={"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 600},
        grader={"kind": "regex", "pattern": r"(?:^|\D)00:(\d\d)$"},
        concurrency=SIDE_BY_SIDE,
        objective={"kind": "baseline", "baseline": ORIGINAL},
    )
    process = workplace.start(config)
    said, _ = process.communicate()
    assert process.returncode in (0, 3), said[-4000:]
    return read(workplace.directory(config), process.returncode)


def answers(run: Finished, asked: Mapping[str, tuple[Group, str]]) -> dict[Group, dict[str, Answers]]:
    """By group and model."""
    numbers = {prompt: number for number, prompt in enumerate(asked)}
    found: dict[Group, dict[str, Answers]] = defaultdict(lambda: defaultdict(dict))
    for one in run.records:
        said = Answer(one.answer.text, one.answer.completion_tokens, float(one.category or 0))
        found[asked[one.question][0]][one.model][numbers[one.question], one.trial] = said
    return found


def values(found: Answers, later: int = 0) -> Values:
    """Whether each answer was right; trials may count as later ones."""
    return {(question, trial + later): one.right for (question, trial), one in found.items()}


def longest(copy: str, of: Mapping[Group, Mapping[str, Answers]], steps: int) -> Iterator[Check]:
    """What is left for a copy where answers are longest."""
    for kind in KINDS:
        answers = of[kind, steps]
        same = compared(values(answers[ORIGINAL]), values(answers[copy]))
        value = round(same.variance, 2) if np.isfinite(same.variance) else ""
        yield Check(f"{copy}, {kind} answers of {steps} steps: variance over independent models", value, "", None)


def row(group: Group, copy: str, mine: Answers, other: Answers) -> tuple[object, ...]:
    """A copy beside the original, on the questions of one group."""
    same = compared(values(mine), values(other))
    own = compared(values(mine), values(other, later=1))
    alike = np.mean([mine[key].text == other[key].text for key in mine])
    scores = [np.mean([one.right for one in found.values()]) for found in (mine, other)]
    tokens = round(float(np.mean([one.tokens for one in mine.values()])))
    return (
        group[0],
        group[1],
        tokens,
        copy,
        f"{scores[0]:.2f}, {scores[1]:.2f}",
        f"{alike:.2f}",
        told(same),
        told(own),
    )


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, required=True, help="the folder that counting_model.py has written")
    parser.add_argument("--trials", type=int, default=30, help="of each question")
    options = parser.parse_args()
    require(VLLM_PYTHON)
    lengths = LENGTHS[:2] if options.quick else LENGTHS
    asked = questions(lengths)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {ORIGINAL: options.models / ORIGINAL, EARLIER: options.models / EARLIER}
        for bits in BITS:
            models[f"int{bits}"] = folder / f"int{bits}"
            rounded(options.models / ORIGINAL, bits, models[f"int{bits}"])
        found = answers(ask(folder, models, asked, options.trials), asked)
    copies = [name for name in models if name != ORIGINAL]
    rows = [row(group, copy, of[ORIGINAL], of[copy]) for group, of in sorted(found.items()) for copy in copies]
    measured = f"{options.trials} trials a question"
    checks = [check for copy in copies for check in longest(copy, found, max(lengths))]
    conclude(options, "Shared seeds and the length of answers", EXPLAINED, measured, markdown(HEADER, rows), checks)


if __name__ == "__main__":
    main()
