"""Log sets to be imported: models that are right at their own rates, with answers of about 800 characters."""

import csv
import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

ZSTANDARD = 93
LETTERS = ("I", "C")
WORDS = ("so", "the", "sum", "of", "all", "terms", "is", "then", "twice", "that", "its", "half", "and", "we", "find")
TIME = "2026-01-01T00-00-00.000000"


class Size(NamedTuple):
    """Models, questions and trials of each question."""

    models: int
    questions: int
    trials: int

    @property
    def all(self) -> int:
        return self.models * self.questions * self.trials


def outcomes(size: Size) -> np.ndarray:
    """(L, M, N): whether each trial is right."""
    rng = np.random.default_rng(7)
    rates = np.clip(rng.beta(1.0, 1.0, size.questions) + np.linspace(-0.3, 0.3, size.models)[:, None], 0.02, 0.98)
    return rng.random(size) < rates[:, :, None]


def answers(seed: int) -> Iterator[str]:
    """Texts of about 800 characters, each another one."""
    rng = np.random.default_rng(seed)
    while True:
        for words in rng.choice(WORDS, (256, 200)):
            yield " ".join(words)


def inspect_logs(folder: Path, size: Size) -> list[Path]:
    """An `.eval` log for each model, its members packed by Zstandard as Inspect does, transcript and all."""
    right, paths = outcomes(size), []
    for model in range(size.models):
        path = folder / f"model-{model}.eval"
        texts = answers(model)
        header = {
            "version": 2,
            "status": "success",
            "eval": {"task": "sums", "model": f"openai/model-{model}", "model_generate_config": {"temperature": 0.6}},
            "plan": {"steps": [], "config": {}},
        }
        samples = (
            (f"samples/{question}_epoch_{trial + 1}.json", sample(model, question, trial, bool(one), next(texts)))
            for (question, trial), one in np.ndenumerate(right[model])
        )
        write_archive(path, [("_journal/start.json", header), ("header.json", header)], samples)
        paths.append(path)
    return paths


def sample(model: int, question: int, trial: int, right: bool, text: str) -> dict[str, object]:
    """A sample as Inspect writes it, with the events of one call."""
    asked = f"What is the sum of question {question}? Reason step by step, and put the answer at the end."
    said = f"{text} ANSWER: {question if right else question + 1}"
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": said, "source": "generate"}]
    usage = {"input_tokens": 40, "output_tokens": 210, "total_tokens": 250}
    output = {
        "model": f"model-{model}",
        "choices": [{"message": turns[1], "stop_reason": "stop"}],
        "completion": said,
        "usage": usage,
        "time": 3.25,
    }
    call = {"event": "model", "model": f"openai/model-{model}", "input": turns[:1], "output": output}
    marks = [
        {"event": "span_begin", "id": f"{mark:022d}", "timestamp": "2026-01-01T00:00:00+00:00"} for mark in range(8)
    ]
    return {
        "id": question,
        "epoch": trial + 1,
        "input": asked,
        "target": str(question),
        "messages": turns,
        "output": output,
        "scores": {"match": {"value": LETTERS[right], "answer": str(question), "explanation": said}},
        "model_usage": {f"openai/model-{model}": usage},
        "events": [*marks, call],
        "uuid": f"{model}-{question}-{trial}",
    }


def write_archive(path: Path, first: list[tuple[str, object]], rest: Iterable[tuple[str, object]]) -> None:
    """A zip of JSON members, packed by Zstandard."""
    packer, entries = zstandard.ZstdCompressor(), []
    with path.open("wb") as file:
        for members in (first, rest):
            for name, value in members:
                data = json.dumps(value, separators=(",", ":")).encode()
                packed, encoded = packer.compress(data), name.encode()
                sizes = struct.pack("<IIIHH", zlib.crc32(data), len(packed), len(data), len(encoded), 0)
                common = struct.pack("<HHHHH", 63, 0, ZSTANDARD, 0, 0x21) + sizes
                entries.append((common, file.tell(), encoded))
                file.write(b"PK\x03\x04" + common + encoded + packed)
        start = file.tell()
        for common, offset, encoded in entries:
            file.write(
                b"PK\x01\x02" + struct.pack("<H", 63) + common + struct.pack("<HHHII", 0, 0, 0, 0, offset) + encoded
            )
        size, count = file.tell() - start, min(len(entries), 0xFFFF)
        file.write(b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count, count, size, start, 0))


def lm_eval_logs(folder: Path, size: Size) -> list[Path]:
    """A samples file for each model with two filters a document; graded anew."""
    right, paths = outcomes(size), []
    for model in range(size.models):
        path = folder / f"org__model-{model}" / f"samples_sums_{TIME}.jsonl"
        path.parent.mkdir()
        texts = answers(model)
        with path.open("w") as file:
            for question in range(size.questions):
                said = [f"{next(texts)} ANSWER: {question if one else question + 1}" for one in right[model, question]]
                row = {
                    "doc_id": question,
                    "doc": {"question": f"sum {question}?"},
                    "target": f"ANSWER: {question}",
                    "arguments": {"gen_args_0": {"arg_0": f"sum {question}?", "arg_1": {"temperature": 0.6}}},
                    "resps": [said],
                    "filtered_resps": said[:1],
                }
                for name in ("strict", "flexible"):
                    file.write(json.dumps({**row, "filter": name}) + "\n")
        paths.append(path)
    return paths


def table(folder: Path, size: Size) -> list[Path]:
    """One row a trial: model, question, trial, category."""
    path = folder / "trials.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "question", "trial", "category"))
        for (model, question, trial), one in np.ndenumerate(outcomes(size)):
            writer.writerow((f"model-{model}", f"q{question}", trial, int(one)))
    return [path]


def tensor(folder: Path, size: Size) -> list[Path]:
    """R in an .npz file."""
    path = folder / "tensor.npz"
    np.savez_compressed(path, R=outcomes(size).astype(np.int8))
    return [path]
