"""Samples and CPU of a task of Inspect under the controller, beside `inspect eval` with a fixed number of epochs.

    python benchmarks/inspect_cpu.py [--pairs N] [--quick] [--json PATH] [--markdown PATH]

Both ask the same 6 models of known skill the same 30 questions on a server on loopback, in turns; who is first changes
from pair to pair. CPU is that of each process with its children, from the operating system's own count. Each runs with
few trials a question as well: a sample's cost is what the others took more, and the rest is start-up and end.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tables import Check, arguments, conclude, markdown

from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import QUESTIONS, coins

MODELS = tuple(f"coin-{number:02}" for number in (1, 3, 6, 7, 9, 11))
EPOCHS, FEW, SLOTS = 80, 4, 16
GOAL_SAMPLES, GOAL_CPU = 0.55, 1.10
TASK = r"""
import json, pathlib
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate


@task
def known():
    rows = map(json.loads, pathlib.Path(__file__).with_name("questions.jsonl").read_text().splitlines())
    samples = [Sample(id=row["id"], input=row["prompt"], target=row["answer"]) for row in rows]
    return Task(dataset=samples, solver=generate(), scorer=pattern(r"boxed\{(\d+)\}"))
"""
FIXED = """
import sys
from inspect_ai import eval
models = [f"openai-api/sim/{name}" for name in sys.argv[3:]]
logs = eval("known.py@known", model=models, epochs=int(sys.argv[1]), max_connections=int(sys.argv[2]),
            max_samples=int(sys.argv[2]), max_tasks=len(models), temperature=0.6, display="none", log_dir="fixed",
            log_realtime=False)
assert all(log.status == "success" for log in logs)
print(sum(log.results.completed_samples for log in logs))
"""


def cpu_of(command: list[str], folder: Path, url: str, *codes: int) -> tuple[float, str]:
    """CPU seconds of a process and its children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "SIM_BASE_URL": url, "SIM_API_KEY": "none"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode not in codes:
        sys.exit(f"{command[:4]} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def by_inspect(folder: Path, url: str, epochs: int) -> tuple[float, int]:
    """CPU seconds and samples of `inspect eval`."""
    cpu, output = cpu_of([sys.executable, "-c", FIXED, str(epochs), str(SLOTS), *MODELS], folder, url, 0)
    return cpu, int(output.split()[-1])


def by_controller(folder: Path, url: str, epochs: int) -> tuple[float, int]:
    """CPU seconds and samples of a run with that many trials a question at most."""
    run = f"run-{epochs}"
    config = {
        "name": run,
        "benchmark": {"inspect": "known.py@known"},
        "models": [
            {"name": name, "inspect": {"model": f"openai-api/sim/{name}", "temperature": 0.6}} for name in MODELS
        ],
        "concurrency": SLOTS,
        "trials": {"min": 4, "max": epochs, "optimize": "cost"},
    }
    (folder / f"{run}.yaml").write_text(json.dumps(config))
    words = [sys.executable, "-m", "adaptive_eval", "run", f"{run}.yaml", "--run-dir", run, "--display", "none"]
    cpu, _ = cpu_of(words, folder, url, 0, 3)
    return cpu, int(json.loads((folder / run / "results.json").read_text())["cost"]["trials"])


def parts(few: tuple[float, int], many: tuple[float, int]) -> tuple[float, float]:
    """CPU seconds of a sample, and of all else, by a run with few samples and a whole one."""
    per_sample = (many[0] - few[0]) / (many[1] - few[1])
    return per_sample, few[0] - per_sample * few[1]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3, help="how often each runs")
    options = parser.parse_args()
    pairs, epochs = (1, 12) if options.quick else (options.pairs, EPOCHS)
    rows, samples, ratios = [], [], []
    for pair in range(pairs):
        world = coins()
        with tempfile.TemporaryDirectory() as place, serving(SimulatedServer(world, seed=pair)) as url:
            folder = Path(place)
            (folder / "known.py").write_text(TASK)
            (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, question_rows(world))))
            turns = [by_inspect, by_controller][:: 1 - pair % 2 * 2]
            cpu = {
                (turn, epochs_of_run): turn(folder, url, epochs_of_run)
                for epochs_of_run in (FEW, epochs)
                for turn in turns
            }
        fixed_few, fixed_all = cpu[by_inspect, FEW], cpu[by_inspect, epochs]
        own_few, own_all = cpu[by_controller, FEW], cpu[by_controller, epochs]
        fixed, ours = fixed_all[1], own_all[1]
        (fixed_each, fixed_start), (own_each, own_start) = parts(fixed_few, fixed_all), parts(own_few, own_all)
        samples.append(ours / fixed)
        ratios.append(own_each / fixed_each)
        costs = f"{1e3 * fixed_each:.2f}", f"{1e3 * own_each:.2f}"
        starts = f"{fixed_start:.1f}", f"{own_start:.1f}"
        totals = f"{fixed_all[0]:.1f}", f"{own_all[0]:.1f}"
        rows.append([pair + 1, f"{fixed:,}", f"{ours:,}", samples[-1], *costs, ratios[-1], *starts, *totals])
    header = ["pair", "samples, eval", "run", "ratio", "CPU ms a sample, eval", "run", "ratio"]
    header += ["CPU s of start and end, eval", "run", "CPU s in all, eval", "run"]
    share, ratio = round(statistics.median(samples), 3), round(statistics.median(ratios), 2)
    checks = [
        Check("samples over those of inspect eval", share, f"<= {GOAL_SAMPLES}", share <= GOAL_SAMPLES),
        Check("CPU a sample over that of inspect eval", ratio, f"<= {GOAL_CPU:.2f}", ratio <= GOAL_CPU),
    ]
    measured = f"{len(MODELS)} models, {QUESTIONS} questions, {epochs} epochs, {SLOTS} samples of a model at a time"
    about = "A task of Inspect under the controller beside `inspect eval`, in turns; medians of the pairs."
    conclude(options, "Inspect's tasks", about, measured, markdown(header, rows), checks)


if __name__ == "__main__":
    main()
