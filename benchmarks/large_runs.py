"""A run of 200 models with many answers: the size of its database, and what a resume, its page and its reports take.

    python benchmarks/large_runs.py [--quick] [--sizes QUESTIONS[xEACH] ...] [--folder PATH]
                                    [--json PATH] [--markdown PATH]

The run is begun, and its first round (four answers a question of each model, or `EACH`, drawn with known chances, of
220 bytes) is committed to its database, trial by trial, as a run would. Its cap is what is there by then, so that
`adaptive-eval run` takes everything up, looks, publishes and ends: that is the resume. The page is what its server does
until the browser has all of it. Each measurement has a process of its own, and memory is the peak of that process. 8
million answers are `--sizes 10000`; with 10000x1 results.json has as many rows, and the database a quarter of the
answers.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.special import expit
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import PreparedRun, prepare
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.trial import DONE, GradeDetails, Trial
from adaptive_eval.notes import RunStarted
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.write import RunStore

MODELS, EACH, AT_ONCE = 200, 4, 65536
MOST_MEMORY, MOST_BYTES_A_TRIAL = 1024.0, 120.0
MOST_PAGE_SECONDS, MOST_PAGE_MEMORY = 5.0, 300.0
HEADER = ("questions", "answers", "file, GB", "what is done", "seconds", "CPU s", "us a trial", "peak MiB")
MEASURED = """
import re, resource, sys, time
begun = time.perf_counter()
code = 0
if sys.argv[1] == "page":
    from pathlib import Path
    from adaptive_eval.show.serve.site import Site
    from adaptive_eval.show.serve.page_state import PageState
    PageState(Path(sys.argv[2])).view()
else:
    from adaptive_eval.__main__ import main
    try:
        main()
    except SystemExit as ended:
        code = ended.code
used = resource.getrusage(resource.RUSAGE_SELF)
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
print("measured", time.perf_counter() - begun, used.ru_utime + used.ru_stime, peak, code, file=sys.stderr)
"""
"""The command, or what a server of pages does, and then what its process has used."""


class Used(NamedTuple):
    """By one command."""

    seconds: float
    cpu: float
    memory: float
    """MiB at its peak."""


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=size, nargs="+", default=[(625, EACH), (1250, EACH), (2500, EACH)],
                        metavar="QUESTIONS[xEACH]", help="questions, and answers to each by each model")  # fmt: skip
    parser.add_argument("--folder", type=Path, help="where the runs are made; else where temporary files are")
    options = parser.parse_args()
    rows: list[tuple[object, ...]] = []
    resumed: dict[int, list[tuple[int, Used]]] = {}
    pages: list[tuple[int, Used]] = []
    for questions, answers in [(50, EACH)] if options.quick else options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            config = configured(Path(name), questions, answers)
            trials = begin(config, Path(name) / "run", answers)
            stored = (Path(name) / "run" / DATABASE_FILE).stat().st_size / 1e9
            for what, used in commands(config, Path(name) / "run"):
                if what == "resume":
                    resumed.setdefault(answers, []).append((trials, used))
                if what == "page":
                    pages.append((trials, used))
                per_trial = 1e6 * used.cpu / trials
                rows.append((questions, trials, stored, what, used.seconds, used.cpu, per_trial, round(used.memory)))
                print(*rows[-1], flush=True)
    checks = [
        Check(f"peak of a resume of {trials:,} answers, MiB", round(used.memory), f"<= {MOST_MEMORY:g}",
              used.memory <= MOST_MEMORY)
        for trials, used in chain(*resumed.values())
    ]  # fmt: skip
    for trials, page in pages:
        for name, value, limit in (
            ("CPU seconds", page.cpu, MOST_PAGE_SECONDS),
            ("MiB", page.memory, MOST_PAGE_MEMORY),
        ):
            checks.append(Check(f"{name} of the page of {trials:,} answers", round(value, 1), f"<= {limit:g}",
                                value <= limit))  # fmt: skip
    for (few, small), (many, large) in pairwise(resumed.get(EACH, [])):
        grown = (large.memory - small.memory) * 2**20 / (many - few)
        name = f"bytes of a resume for each answer from {few:,} to {many:,}"
        checks.append(Check(name, round(grown), f"<= {MOST_BYTES_A_TRIAL:g}", grown <= MOST_BYTES_A_TRIAL))
    text = "\n\n".join(
        ["# Large runs", about(), f"On {machine()}; {MODELS} models.", markdown(HEADER, rows), check_table(checks)]
    )
    publish(options, text, checks)
    sys.exit(0 if all(check.holds is not False for check in checks) else 1)


def size(given: str) -> tuple[int, int]:
    """Questions, and answers to each by each model."""
    questions, _, answers = given.partition("x")
    return int(questions), int(answers or EACH)


def about() -> str:
    return "\n\n".join(part for part in (__doc__ or "").split("\n\n") if not part.startswith("    ")).strip()


def configured(folder: Path, questions: int, answers: int) -> Path:
    """A configuration of as many models as there are, on servers that nobody asks."""
    rows = ({"id": f"q{at:05}", "prompt": f"What is {at} + 1?", "answer": str(at + 1)} for at in range(questions))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {
        "name": "large",
        "questions": "questions.jsonl",
        "models": [{"name": f"m{at:03}", "base_url": "http://127.0.0.1:9/v1"} for at in range(MODELS)],
        "grader": "numeric",
        "trials": {"min": answers, "max": 80},
        "budget": {"trials": MODELS * questions * answers},
    }
    path = folder / "large.yaml"
    path.write_text(json.dumps(settings))
    return path


def begin(config: Path, directory: Path, answers: int) -> int:
    """The run with its first round, in the order in which answers come: trial by trial over all models."""
    prepared, number = prepare(load_config(config)), 0
    with closing(RunStore.open(directory, prepared.header).store) as store:
        store.append(note_of(RunStarted(0, os.getpid(), "localhost", "", {}), {}))
        trials = answered(prepared, answers)
        while batch := list(islice(trials, AT_ONCE)):
            number += len(batch)
            store.commit([*enumerate(batch, store.last_seq + 1)], elapsed=0.001 * number)
    return number


def answered(prepared: PreparedRun, answers: int) -> Iterator[Trial]:
    """The answers of all models; models and questions of a new run have their numbers in the configuration."""
    rng, keys = np.random.default_rng(1), [question.answer for question in prepared.questions]
    difficulty = rng.normal(0.0, 1.5, len(keys))
    signals = [{"is_correct": correct, "has_answer": True} for correct in (False, True)]
    filler, cost = "so that the sum is found by counting one further. " * 4, Cost(80, 0.0, 1.5)
    for number in range(answers):
        for model, ability in enumerate(np.linspace(-1.5, 1.5, len(prepared.models))):
            right = (rng.random(len(keys)) < expit(ability - difficulty)).tolist()
            texts = rng.integers(0, 2**63, len(keys)).tolist()
            for question, (correct, text, key) in enumerate(zip(right, texts, keys, strict=True)):
                answer = Answer(f"{text:x}: {filler}", "stop", number, "http://127.0.0.1:9/v1", 1.5,
                                prompt_tokens=20, completion_tokens=60)  # fmt: skip
                grade = GradeDetails(signals[correct], key)
                yield Trial(model, question, number, 0, DONE, cost, category=int(correct), seconds=1.5, answer=answer,
                            grade=grade)  # fmt: skip


def commands(config: Path, directory: Path) -> Iterator[tuple[str, Used]]:
    """The resume first; the others read what it leaves."""
    yield "resume", measured("run", str(config), "--run-dir", str(directory), "--display", "none")
    yield "page", measured("page", str(directory))
    yield "monitor", measured("monitor", "--once", str(directory))
    yield "report, Markdown", measured("report", str(directory), "--format", "md")
    yield "report, HTML", measured("report", str(directory), "--format", "html")


def measured(*command: str) -> Used:
    done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=False)
    match = re.search(r"measured (\S+) (\S+) (\S+) (\S+)", done.stderr)
    if match is None or match[4] not in ("0", "3", "None"):
        sys.exit(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    return Used(float(match[1]), float(match[2]), float(match[3]))


if __name__ == "__main__":
    main()
