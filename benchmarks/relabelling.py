"""How long it takes to see a large run under all twelve schemata of the Bayes@N paper.

    python benchmarks/relabelling.py [--quick] [--json PATH] [--markdown PATH]

A table of 20 models x 120 questions x 80 trials (192,000; --quick: 12,000) with every base signal, drawn at random, is
imported as a run. Then `adaptive-eval relabel` is started in a process of its own, imports and all. Of three starts the
least counts, and of it the CPU seconds, since it is one thread and others use the machine. Beside it stands the same
for a rubric of one's own, which is worked out trial by trial, and what the twelve cost `scorio.categorical` alone on
columns that are there already.
"""

import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tables import Check, arguments, check_table, machine, markdown, publish

from scorio.categorical import SCHEMATA, Signals, classify, fit_thresholds

WITHIN = 10.0
STARTS = 3
OWN = """rubric:
  categories:
    - {name: cut off, weight: 0, when: {truncated: true}}
    - {name: brief, weight: 1, when: {is_correct: true, token_ratio: {at_most: 0.3}}}
    - {name: right, weight: 0.8, when: {is_correct: true}}
    - {name: wrong, weight: 0}
"""


class Elapsed(NamedTuple):
    """One way to look at the run: the least of several."""

    seconds: float
    cpu: float


def write_table(path: Path, models: int, questions: int, trials: int) -> Signals:
    """Trials whose signals depend on each other a little, as a table; gives the same as columns."""
    rng = np.random.default_rng(1)
    total = models * questions * trials
    ability = np.repeat(np.linspace(0.75, 0.35, models), questions * trials)
    correct = rng.random(total) < ability
    tokens = np.clip(rng.lognormal(8.5, 0.7, total) * np.where(correct, 1.0, 1.4), 50, 32768).astype(int)
    box = rng.random(total) < np.where(correct, 0.95, 0.8)
    bits = rng.gamma(4.0, np.where(correct, 0.08, 0.11))
    prompt_bits = np.tile(np.repeat(rng.gamma(9.0, 0.2, questions), trials), models)
    labels = rng.dirichlet((2.0, 1.0, 0.3), total)
    labels[~correct] = labels[~correct][:, [1, 0, 2]]
    head = ["model", "question", "correct", "finish_reason", "prompt_tokens", "completion_tokens", "completion_bpt"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*head, "prompt_bpt", "signals"])
        for at in range(total):
            model, question = divmod(at // trials, questions)
            a, b, c = labels[at].round(4).tolist()
            said = {"is_correct": bool(correct[at]), "has_box": bool(box[at])}
            said |= {"verifier_a": a, "verifier_b": b, "verifier_c": c}
            reason = "stop" if tokens[at] < 32768 else "length"
            used = [reason, 100, tokens[at], bits[at], prompt_bits[at]]
            writer.writerow([f"model-{model:02d}", f"q{question}", int(correct[at]), *used, json.dumps(said)])
    return Signals(
        is_correct=correct.astype(float),
        has_box=box.astype(float),
        token_ratio=tokens / 32768,
        repeated_pattern=(tokens == 32768).astype(float),
        completion_bpt=bits,
        prompt_bpt=prompt_bits,
        verifier_a=labels[:, 0],
        verifier_b=labels[:, 1],
        verifier_c=labels[:, 2],
    )


def relabelled(directory: Path, *options: str) -> Elapsed:
    """`adaptive-eval relabel` in a process of its own."""
    took = []
    for _ in range(STARTS):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "adaptive_eval", "relabel", str(directory), *options]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(Elapsed(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        rubrics = json.loads(done.stdout)["relabelling"]["rubrics"] if "json" in options else []
        assert not rubrics or "--rubric" in options or len(rubrics) == 1 + len(SCHEMATA), len(rubrics)
    return min(took)


def alone(signals: Signals) -> float:
    """CPU seconds of the schemata on columns."""
    began = time.process_time()
    thresholds = fit_thresholds(signals)
    for schema in SCHEMATA.values():
        classify(signals, schema, thresholds)
    return time.process_time() - began


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    size = (10, 30, 40) if options.quick else (20, 120, 80)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        signals = write_table(folder / "table.csv", *size)
        command = ["import", str(folder / "table.csv"), "--to", str(folder / "run")]
        subprocess.run([sys.executable, "-m", "adaptive_eval", *command], check=True, stdout=subprocess.DEVNULL)
        (folder / "own.yaml").write_text(OWN)
        twelve = relabelled(folder / "run", "--format", "json")
        own = relabelled(folder / "run", "--format", "json", "--rubric", str(folder / "own.yaml"))
    checks = [
        Check("relabel under all twelve: CPU seconds", round(twelve.cpu, 2), f"< {WITHIN:g}", twelve.cpu < WITHIN)
    ]
    rows = [
        ("all twelve schemata", round(twelve.seconds, 2), round(twelve.cpu, 2)),
        ("a rubric of one's own", round(own.seconds, 2), round(own.cpu, 2)),
        ("scorio.categorical alone", "", round(alone(signals), 2)),
    ]
    shape = " x ".join(map(str, size))
    parts = [
        "# Relabelling",
        (__doc__ or "").strip(),
        f"On {machine()}; {shape} trials.",
        markdown(("what", "seconds", "CPU seconds"), rows),
        check_table(checks),
    ]
    publish(options, "\n\n".join(parts), checks)
    sys.exit(0 if all(check.holds for check in checks) else 1)


if __name__ == "__main__":
    main()
