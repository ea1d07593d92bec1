"""How much of the processor a trial takes in a whole run, beside an earlier version of this package.

    python benchmarks/trial_cost.py --against DIR [--pairs N] [--quick] [--json PATH] [--markdown PATH]

Both versions take turns, so that a busy machine slows both. What counts is the time that the processor spent on the
process, with its threads, while trials were asked, graded and stored: neither start-up nor the report is in it. This
version runs in the loop of uvloop where that is installed, as for a user, and once more in asyncio's own.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tables import Check, arguments, check_table, machine, markdown, publish
from throughput import MODELS, QUESTIONS, configuration, one_reply

HERE = Path(__file__).parents[1]
TRIALS = 3000
GOAL = 1.0
WRAPPED = """
import runpy, sys, time
from pathlib import Path
from adaptive_eval.scheduler.scheduler import Scheduler

told, loop = Path(sys.argv.pop()), sys.argv.pop()
whole = Scheduler.run


async def measured(self):
    begun = time.process_time()
    try:
        return await whole(self)
    finally:
        told.write_text(str(time.process_time() - begun))


Scheduler.run = measured
if loop == "plain":
    import adaptive_eval.running.event_loop as event_loop

    event_loop._factory = lambda: None
runpy.run_module("adaptive_eval", run_name="__main__", alter_sys=True)
"""


def cpu_of_trial(source: Path, url: str, in_flight: int, loop: str) -> float:
    """Milliseconds of the processor for one of the trials of a run."""
    with tempfile.TemporaryDirectory() as folder:
        config, told = configuration(url, in_flight, TRIALS // (QUESTIONS * MODELS), Path(folder)), Path(folder, "cpu")
        command = [sys.executable, "-c", WRAPPED, "run", str(config), "--run-dir", f"{folder}/run", "--display", "none"]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        done = subprocess.run([*command, loop, str(told)], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode not in (0, 3) or not told.exists():
            sys.exit(f"a run of {source} ended with {done.returncode}: {done.stderr[-500:]}")
        return float(told.read_text()) / TRIALS * 1e3


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, required=True, metavar="DIR", help="a checkout of the earlier version")
    parser.add_argument("--pairs", type=int, default=10, help="how often each version runs")
    options = parser.parse_args()
    pairs = 2 if options.quick else options.pairs
    versions = {"earlier": (options.against.resolve(), "usual"), "now": (HERE, "usual"), "now, plain": (HERE, "plain")}
    rows: list[list[object]] = []
    checks: list[Check] = []
    with one_reply() as url:
        for level in (64,) if options.quick else (64, 256, 1024):
            taken: dict[str, list[float]] = {name: [] for name in versions}
            for _ in range(pairs):
                for name, (source, loop) in versions.items():
                    taken[name].append(cpu_of_trial(source, url, level, loop))
            least = {name: min(times) for name, times in taken.items()}
            ratios = {name: round(least[name] / least["earlier"], 2) for name in ("now", "now, plain")}
            medians = {
                name: round(statistics.median(map(float.__truediv__, taken[name], taken["earlier"])), 2)
                for name in ratios
            }
            rows.append([level, *(f"{one:.3f}" for one in least.values()), *ratios.values(), *medians.values()])
            goal = f"<= {GOAL:g}"
            checks += [
                Check(f"{name}, {level} in flight", ratio, goal, ratio <= GOAL) for name, ratio in ratios.items()
            ]
    header = ["in flight", "earlier, ms", "now, ms", "now without uvloop, ms", "ratio", "ratio without uvloop"]
    header += ["median of pairs", "without uvloop"]
    text = f"# What a trial costs\n\nThe least of {pairs} runs of {TRIALS:,} trials each, in turns. {machine()}.\n\n"
    publish(options, f"{text}{markdown(header, rows)}\n\n{check_table(checks)}", checks)


if __name__ == "__main__":
    main()
