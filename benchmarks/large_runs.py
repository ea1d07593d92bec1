"""A run of 200 models with many answers: the size of its database, and what a resume, its page and its reports take.

    python benchmarks/large_runs.py [--quick] [--json PATH]

The run is begun, and its first round (one or four answers a question of each model, drawn with known chances, of
220 bytes) is committed to its database, trial by trial, as a run would. Its cap is what is there by then, so that
`adaptive-eval run` takes everything up, looks, publishes and ends: that is the resume. The page is what its server does
until the browser has all of it. Each measurement has a process of its own, and memory is the peak of that process.
With one answer to each question results.json has as many rows, and the database a quarter of the answers.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.special import expit
from tables import Check, arguments, at_most, markdown, publish

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
SIZES = ((50, EACH), (10_000, 1), (10_000, EACH))
"""Questions, and answers to each by each model."""
MOST_MEMORY, MOST_BYTES = 1024.0, 120.0
MOST_PAGE_SECONDS, MOST_PAGE_MEMORY = 5.0, 300.0
HEADER = ("answers", "file, GB", "what is done", "seconds", "CPU s", "peak MiB")
MEASURED = """
import re, resource, sys, time
begun = time.perf_counter()
code = 0
if sys.argv[1] == "page":
    from pathlib import Path
    from adaptive_eval.show.serve.site import Site
    from adaptive_eval.show.serve.feed import Feed
    from adaptive_eval.show.serve.page_state import PageState
    PageState(Feed(Path(sys.argv[2]))).view()
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


def main() -> None:
    options = arguments(__doc__).parse_args()
    rows, checks = list[tuple[object, ...]](), list[Check]()
    resumed: list[tuple[int, float]] = []
    for questions, answers in SIZES[:1] if options.quick else SIZES:
        with tempfile.TemporaryDirectory() as name:
            config, directory = configured(Path(name), questions, answers), Path(name) / "run"
            trials = begin(config, directory, answers)
            stored = (directory / DATABASE_FILE).stat().st_size / 1e9
            for what, (seconds, cpu, memory) in commands(config, directory):
                rows.append((f"{trials:,}", stored, what, seconds, cpu, round(memory)))
                named = f"of the {what} of {trials:,} answers"
                if what == "resume":
                    checks.append(at_most(f"MiB {named}", memory, MOST_MEMORY, 0))
                    resumed += [(trials, memory)] if answers == EACH else []
                if what == "page":
                    checks.append(at_most(f"CPU seconds {named}", cpu, MOST_PAGE_SECONDS, 1))
                    checks.append(at_most(f"MiB {named}", memory, MOST_PAGE_MEMORY, 0))
    for (few, small), (many, large) in pairwise(resumed):
        grown = (large - small) * 2**20 / (many - few)
        checks.append(at_most(f"bytes of a resume for each answer from {few:,} to {many:,}", grown, MOST_BYTES, 0))
    publish(options, "Large runs", __doc__, f"{MODELS} models.", markdown(HEADER, rows), checks=checks)


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
    with closing(RunStore.open(directory, prepared.header)) as store:
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


def commands(config: Path, directory: Path) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """The resume first; the others read what it leaves."""
    yield "resume", measured("run", str(config), "--run-dir", str(directory), "--display", "none")
    yield "page", measured("page", str(directory))
    yield "monitor", measured("monitor", "--once", str(directory))
    yield "report, Markdown", measured("report", str(directory), "--format", "md")
    yield "report, HTML", measured("report", str(directory), "--format", "html")


def measured(*command: str) -> tuple[float, float, float]:
    """Seconds, CPU seconds, and MiB at the peak of a command."""
    done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=False)
    match = re.search(r"measured (\S+) (\S+) (\S+) (\S+)", done.stderr)
    if match is None or match[4] not in ("0", "3", "None"):
        sys.exit(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    return float(match[1]), float(match[2]), float(match[3])


if __name__ == "__main__":
    main()
