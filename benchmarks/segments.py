"""Answers in segments beside answers in the database: size on disk, CPU to store one, and time to read one.

    python benchmarks/segments.py [--quick] [--json PATH] [--markdown PATH]

The same trials are committed both ways, 60 at a time, by the store alone, and the run is closed, so that every text
lies where it stays. The texts are words that are drawn as often as words of English are, which packs to about what
answers of models do. Reading is measured one answer of a question at a time, each by a reader that was just opened, as
a page does, and all of them in their order, as an export does.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.endpoints.types import Answer
from adaptive_eval.store import CommitBatch, RunHeader, RunReader, Store, TrialRecord

PLACES = ("ledger", "segments")
BATCH = 60
QUESTIONS = 20
LOOKED_AT = 15
LONG = 8000
"""Characters from which on answers are what segments are for."""


class Kept(NamedTuple):
    """What one way of keeping answers takes."""

    mib: float
    cpu: float
    one: float
    """By a reader that was just opened."""
    all: float
    """Each, where all are read in their order."""


def words_of_english(chance: np.random.Generator) -> tuple[list[str], NDArray[np.float64]]:
    """Words, and how often each comes: the n-th in proportion to 1/n."""
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(chance.choice(letters, size=length)) for length in chance.integers(1, 10, size=8000)]
    often = 1.0 / np.arange(1, len(words) + 1)
    return words, often / often.sum()


def trials(number: int, characters: int) -> Iterator[TrialRecord]:
    """So many, of about so many characters."""
    chance = np.random.default_rng(1)
    words, often = words_of_english(chance)
    for at in range(number):
        text = " ".join(words[which] for which in chance.choice(len(words), size=characters // 6, p=often))
        answer = Answer(text, "stop", at, "http://server", 1.0, completion_tokens=characters // 4)
        yield TrialRecord("model", f"q{at % QUESTIONS}", at // QUESTIONS, at // QUESTIONS, answer, at % 2)


def header() -> RunHeader:
    """A run of one model."""
    return RunHeader("bench", {"seed": 1}, {"seed": 1}, {"model": {}}, {f"q{at}": {} for at in range(QUESTIONS)})


def kept(folder: Path, answers: str, records: list[TrialRecord]) -> Kept:
    """Store them so, and read them."""
    directory = folder / answers
    began = time.process_time()
    store = Store.open(directory, header(), answers).store
    for at in range(0, len(records), BATCH):
        store.commit(CommitBatch(records[at : at + BATCH]))
    store.close()
    cpu = (time.process_time() - began) / len(records)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 2**20
    chance, took = random.Random(2), []
    for _ in range(LOOKED_AT):
        wanted = chance.choice(records)
        began = time.process_time()
        with closing(RunReader.open(directory)) as reader:
            assert next(reader.cell(wanted.model, wanted.question, wanted.trial - 1)) == wanted
        took.append(time.process_time() - began)
    began = time.process_time()
    with closing(RunReader.open(directory)) as reader:
        for read, written in zip(reader.trials(), records, strict=True):
            assert read.answer.text == written.answer.text
    return Kept(size, cpu, statistics.median(took), (time.process_time() - began) / len(records))


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    sizes = ((1_000, 2_000), (40_000, 300)) if options.quick else ((1_000, 5_000), (8_000, 2_000), (40_000, 1_700))
    rows: list[tuple[object, ...]] = []
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as folder:
        kept(Path(folder, "warm"), "segments", list(trials(BATCH, 1000)))  # pyarrow is loaded once
        for characters, number in sizes:
            records = list(trials(number, characters))
            found = dict(
                zip(PLACES, map(partial(kept, Path(folder, str(characters)), records=records), PLACES), strict=True)
            )
            for answers, one in found.items():
                what = f"{characters:,} characters, {answers}"
                rows.append((what, number, f"{one.mib:.1f}", *(f"{1e3 * value:.2f}" for value in one[1:])))
            share = found["segments"].mib / found["ledger"].mib
            checks.append(
                Check(f"size with segments, {characters:,} characters", f"{share:.0%}", "< 100%", share < 1.0)
            )
    columns = ("answers", "trials", "MiB", "CPU ms to store one", "CPU ms to read one", "CPU ms each, all read")
    parts = [
        "# Answers in segments",
        "What `benchmarks/segments.py` prints: the same trials with their texts in the database, and in Parquet files "
        "beside it. To read one is a reader that was just opened, the database's pages warm.",
        check_table(checks),
        markdown(columns, rows),
        "With segments a text is packed for the database first, so that it is safe at once, and then for its segment: "
        "the CPU to store one has both in it.",
        f"{machine()}.",
    ]
    publish(options, "\n\n".join(parts), checks)


if __name__ == "__main__":
    main()
