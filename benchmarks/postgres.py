"""What a ledger in a PostgreSQL database costs, beside the file `run.sqlite`.

    python benchmarks/postgres.py --ledger postgresql://HOST/DATABASE [--quick] [--json PATH] [--markdown PATH]

The same trials are committed to both in turn, in batches as a run commits them, and read again as a resume and a report
read them. Then the same whole run, 64 requests in flight on a server that answers at once. CPU is that of
adaptive-eval, without the database server's own. The runs stay in the database, named
`benchmark-...`.
"""

import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tables import Check, arguments, check_table, machine, markdown, publish
from throughput import COMMAND, MODELS, QUESTIONS, configuration, finished, one_reply

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.store import CommitBatch, RunHeader, RunReader, Store, TrialRecord
from adaptive_eval.store.address import VARIABLE, LedgerAddress
from adaptive_eval.store.whereabouts import point_to

LEDGERS = ("SQLite", "PostgreSQL")
BATCHES = {"60 trials a commit, answers of 1,000 characters": (60, 1000), "6 trials, 1,000": (6, 1000)}
BATCHES |= {"60 trials, 30,000": (60, 30_000)}
MOST_TIMES = 1.25
"""Goal: the CPU of a trial in a whole run, beside SQLite."""


class Measured(NamedTuple):
    """Milliseconds."""

    cpu: float
    wall: float


def measured(work: Callable[[], object], number: int) -> Measured:
    """CPU and wall time for each of so many."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Measured((time.process_time() - cpu) / number * 1e3, (time.perf_counter() - wall) / number * 1e3)


def texts(characters: int) -> Iterator[str]:
    """Answers that compress about as English does."""
    words, chance = [f"{n:x}word"[: 3 + n % 7] for n in range(3000)], random.Random(1)
    while True:
        yield " ".join(chance.choices(words, k=characters // 6))


def trials_of(number: int, characters: int) -> list[TrialRecord]:
    """So many trials of one cell."""
    answers = (
        Answer(text, "stop", 7 + trial, "http://127.0.0.1:1/v1", 1.5, prompt_tokens=90, completion_tokens=300)
        for trial, text in zip(range(number), texts(characters), strict=False)
    )
    return [
        TrialRecord("m", "q", trial, 0, answer, 1, {"is_correct": True}, "7", cost=Cost(390, 0.0, 0.0))
        for trial, answer in enumerate(answers)
    ]


def directory_of(ledger: str, folder: Path, address: LedgerAddress) -> Path:
    """A new one, with its ledger there."""
    directory = folder / f"benchmark-{uuid4().hex[:10]}"
    if ledger == "PostgreSQL":
        point_to(directory, address)
    return directory


def committed(directory: Path, trials: list[TrialRecord], together: int) -> Measured:
    """The time of a trial."""
    header = RunHeader("b", {"models": []}, {}, {"m": {}}, {"q": {"prompt": "?", "answer": "7"}})
    with closing(Store.open(directory, header).store) as store:

        def commit_all() -> None:
            for first in range(0, len(trials), together):
                store.commit(CommitBatch(trials[first : first + together], elapsed=float(first)))

        return measured(commit_all, len(trials))


def read(directory: Path, number: int) -> tuple[Measured, Measured]:
    """The time of a trial without its texts, and with them."""

    def every(texts: bool) -> None:
        with closing(RunReader.open(directory)) as reader:
            found = reader.trials() if texts else reader.outcomes()
            assert sum(1 for _ in found) == number

    return measured(lambda: every(False), number), measured(lambda: every(True), number)


def whole_run(ledger: str, url: str, address: LedgerAddress, trials: int) -> Measured:
    """CPU seconds of a whole run, and those in which it was at work."""
    with tempfile.TemporaryDirectory() as folder:
        path = configuration(url, 64, trials // (QUESTIONS * MODELS), Path(folder))
        store = {"ledger": str(address)} if ledger == "PostgreSQL" else {}
        more = {"sampling": {"max_tokens": 512}, "stopping": {"on_alarm": "never"}, "store": store}
        path.write_text(json.dumps(json.loads(path.read_text()) | more))
        directory = Path(folder) / f"benchmark-{uuid4().hex[:10]}"
        cost = finished([str(COMMAND), "run", str(path), "--run-dir", str(directory), "--display", "none"], (0, 3))
        at_work = json.loads((directory / "results.json").read_text())["run"]["active_seconds"]
    return Measured(cost.cpu, at_work)


def a_trial(ledger: str, url: str, address: LedgerAddress, few: int, many: int) -> Measured:
    """Milliseconds of a trial in a whole run: what many take beyond few."""
    (cpu, wall), (more_cpu, more_wall) = (whole_run(ledger, url, address, trials) for trials in (few, many))
    return Measured((more_cpu - cpu) / (many - few) * 1e3, (more_wall - wall) / (many - few) * 1e3)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--ledger", required=True, help="a database that may be written, as postgresql://HOST/DATABASE")
    options = parser.parse_args()
    address = LedgerAddress.parse(options.ledger)
    os.environ[VARIABLE] = str(address)
    turns, number, few, many = (1, 1200, 600, 1800) if options.quick else (5, 6000, 600, 4800)
    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (together, characters) in BATCHES.items():
            trials = trials_of(number if characters < 10_000 else number // 5, characters)
            found: dict[str, list[list[Measured]]] = {ledger: [] for ledger in LEDGERS}
            for turn in range(turns):
                for ledger in LEDGERS[:: 1 if turn % 2 else -1]:
                    directory = directory_of(ledger, Path(folder), address)
                    found[ledger].append([committed(directory, trials, together), *read(directory, len(trials))])
            rows += [(name, ledger, *_medians(found[ledger])) for ledger in LEDGERS]
    runs: dict[str, list[Measured]] = {ledger: [] for ledger in LEDGERS}
    with one_reply(0.0) as url:
        for turn in range(turns):
            for ledger in LEDGERS[:: 1 if turn % 2 else -1]:
                runs[ledger].append(a_trial(ledger, url, address, few, many))
    times = [other.cpu / own.cpu for own, other in zip(*runs.values(), strict=True)]
    middle = statistics.median(times)
    said = f"{middle:.2f} ({min(times):.2f} to {max(times):.2f})"
    name = "CPU of a trial in a whole run, times that with SQLite"
    checks = [Check(name, said, f"<= {MOST_TIMES}", middle <= MOST_TIMES)]
    whole = [
        (ledger, f"{statistics.median(one.cpu for one in found):.3f}", f"{_rate(found):,.0f}")
        for ledger, found in runs.items()
    ]
    document = [
        "# A ledger in PostgreSQL",
        f"What `benchmarks/postgres.py` prints: medians of {turns} turns; every figure is of one trial.",
        check_table(checks),
        markdown(
            ("a commit has", "ledger", "commit, CPU ms", "commit, ms", "read, CPU ms", "with texts, CPU ms"), rows
        ),
        markdown(("a whole run, a server that answers at once", "CPU ms a trial", "trials/s"), whole),
        "CPU is that of adaptive-eval, without the database server's own, which had the same cores.",
        f"{machine()}.",
    ]
    publish(options, "\n\n".join(document), checks)


def _medians(found: list[list[Measured]]) -> list[str]:
    commit, outcomes, whole = zip(*found, strict=True)
    columns = [one.cpu for one in commit], [one.wall for one in commit], [one.cpu for one in outcomes]
    return [f"{statistics.median(column):.4f}" for column in (*columns, [one.cpu for one in whole])]


def _rate(found: list[Measured]) -> float:
    return 1000 / statistics.median(one.wall for one in found)


if __name__ == "__main__":
    main()
