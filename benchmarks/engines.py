"""Trials a second on a real server: whole runs beside a bare loop of the same requests, and `vllm bench serve`.

    python benchmarks/engines.py [--quick] [--json PATH] [--markdown PATH]

One vLLM server on a CPU, with a tiny model; `tests/engines/run` installs the server. A run asks two models, the same
one at two temperatures, a fixed number of trials; its seconds are those from its first request to its last commit. The
bare loop sends the same requests, with the same prompts, seeds and settings, over as many connections, reads the
answers' JSON, and grades and keeps nothing. `vllm bench serve` sends as many requests with the same prompts, and
has the answers streamed. All take turns on the same server, since the speed of a shared machine changes from minute to
minute: a ratio is that of two neighbours in time, and what is held against a goal is the median of the ratios.
"""

import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tables import Check, arguments, check_table, machine, markdown, write_json

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "engines"))

from arithmetic import questions  # noqa: E402
from engine_runs import SAMPLING, Workplace  # noqa: E402
from engine_servers import VLLM_ENVIRONMENT, VLLM_PYTHON, Server, running, vllm  # noqa: E402
from family import base, checkpoints  # noqa: E402

from adaptive_eval.seeds import hashed_base  # noqa: E402
from adaptive_eval.store.schema import DATABASE_FILE  # noqa: E402

TEMPERATURES = {"plain": 1.0, "cool": 0.9}
SEED, CONNECTIONS, TOGETHER = 2026, 32, 8
BENCH = (
    "from vllm.benchmarks.serve import add_cli_args, main\n"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
    "parser = FlexibleArgumentParser()\n"
    "add_cli_args(parser)\n"
    "main(parser.parse_args())\n"
)
"""What `vllm bench serve` does; the command itself asks for a package named vllm, which the build for CPUs is not."""

Arm = Callable[[Server, int], float]
"""So many trials of each question by each model; gives trials a second."""


def asked(trials: int) -> int:
    """How many trials that are in all."""
    return trials * len(questions()) * len(TEMPERATURES)


def whole_run(server: Server, trials: int, together: int = 1) -> float:
    """`adaptive-eval run` in a process of its own."""
    models = [
        {"name": name, "model": base(), "base_url": server.base_url, "sampling": {"temperature": value}}
        for name, value in TEMPERATURES.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        workplace = Workplace.make(Path(folder))
        config = workplace.configure(
            "run",
            models,
            trials={"min": trials, "max": trials},
            concurrency={"concurrency": CONNECTIONS // len(models), "samples_per_request": together},
        )
        # 3: such temperatures are hardly told apart
        workplace.run(config, accepted=(0, 3))
        with closing(sqlite3.connect(workplace.directory(config) / DATABASE_FILE)) as database:
            ((done, seconds),) = database.execute("SELECT count(*), max(at) - min(at - latency) FROM trials")
    assert done == asked(trials)
    return done / float(seconds)


def eight_together(server: Server, trials: int) -> float:
    """The same with eight answers to a request."""
    return whole_run(server, trials, TOGETHER)


def bodies(trials: int) -> list[dict[str, object]]:
    """The requests of a whole run."""
    return [
        {
            "model": base(),
            "messages": [{"role": "user", "content": one.prompt}],
            **SAMPLING,
            "temperature": temperature,
            "seed": hashed_base(SEED, name, one.prompt) + trial,
        }
        for trial in range(trials)
        for one in questions()
        for name, temperature in TEMPERATURES.items()
    ]


def bare_loop(server: Server, trials: int) -> float:
    """The same requests, and nothing else."""
    lines = "\n".join(json.dumps(body) for body in [bodies(1)[0], *bodies(trials)])
    command = [sys.executable, str(HERE / "engines_bare.py"), server.base_url, str(CONNECTIONS)]
    done = subprocess.run(command, input=lines, check=True, capture_output=True, text=True, timeout=600)
    return asked(trials) / float(done.stdout)


def bench_serve(server: Server, trials: int) -> float:
    """vLLM's own benchmark client."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [{"prompt": one.prompt} for _ in range(trials * len(TEMPERATURES)) for one in questions()]
        (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        options = {
            "backend": "openai-chat",
            "base-url": server.root,
            "endpoint": "/v1/chat/completions",
            "model": checkpoints()[base()],
            "served-model-name": base(),
            "dataset-name": "custom",
            "dataset-path": folder / "prompts.jsonl",
            "custom-output-len": SAMPLING["max_tokens"],
            "num-prompts": len(rows),
            "max-concurrency": CONNECTIONS,
            "temperature": SAMPLING["temperature"],
            "top-p": SAMPLING["top_p"],
            "result-dir": folder,
            "result-filename": "result.json",
        }
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        command = [VLLM_PYTHON, "-c", BENCH, *words, "--skip-chat-template", "--save-result", "--disable-tqdm"]
        environment = VLLM_ENVIRONMENT | {"PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
        subprocess.run(command, check=True, capture_output=True, timeout=600, env=environment)
        result = json.loads((folder / "result.json").read_text())
    assert result["completed"] == asked(trials)
    return float(result["request_throughput"])


ARMS: dict[str, Arm] = {
    "adaptive-eval run": whole_run,
    "bare loop": bare_loop,
    "vllm bench serve": bench_serve,
    f"adaptive-eval run, {TOGETHER} answers a request": eight_together,
}


class Speed(NamedTuple):
    """Of one arm in one turn."""

    rate: float
    """Trials a second."""
    cpu: float
    """Milliseconds that the server computed for a trial, whatever else the machine did: fuller batches take fewer."""


def measure(server: Server, trials: int, turns: int) -> dict[str, list[Speed]]:
    """Each arm's speed, turn by turn; every other turn backwards, so that none is always first."""
    speeds: dict[str, list[Speed]] = {name: [] for name in ARMS}
    whole_run(server, 2)  # whatever a server does on its first requests
    for turn in range(turns):
        for name, arm in list(ARMS.items())[:: -1 if turn % 2 else 1]:
            before = server.cpu_seconds()
            rate = arm(server, trials)
            speeds[name].append(Speed(rate, 1e3 * (server.cpu_seconds() - before) / asked(trials)))
            print(f"turn {turn + 1}: {name}: {rate:.0f} trials/s", file=sys.stderr, flush=True)
    return speeds


def spread(values: Sequence[float], digits: int) -> str:
    """Median, and the range around it."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})"


def compare(speeds: dict[str, list[Speed]]) -> tuple[list[Check], str]:
    """The ratios to their goals, and the table of what was measured."""
    rates = {name: [one.rate for one in found] for name, found in speeds.items()}
    run, bare, bench, eight = rates.values()
    found = {
        "a run's trials/s, of those of the bare loop": (run, bare, 0.97, "97%"),
        "a run's trials/s, of those of vllm bench serve": (run, bench, 0.97, "97%"),
        f"trials/s with {TOGETHER} answers a request, times those with one": (eight, run, 3.0, "3"),
    }
    checks, scatter = [], []
    for name, (over, under, least, goal) in found.items():
        ratios = [one / other for one, other in zip(over, under, strict=True)]
        middle = statistics.median(ratios)
        checks.append(Check(name, round(middle, 3), f">= {goal}", middle >= least))
        scatter.append((name, spread(ratios, 2)))
    rows = [(name, spread([s.rate for s in of], 0), spread([s.cpu for s in of], 1)) for name, of in speeds.items()]
    measured = "median (least .. most)"
    header = (measured, "trials a second", "the server's CPU ms a trial")
    return checks, "\n\n".join([markdown(header, rows), markdown(("ratio of neighbours in time", measured), scatter)])


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    trials, turns = (8, 1) if options.quick else (30, 11)
    with tempfile.TemporaryDirectory() as folder:
        server = vllm(checkpoints()[base()], Path(folder) / "vllm.log")
        with running(server):
            speeds = measure(server, trials, turns)
    checks, tables = compare(speeds)
    title = f"# Engines\n\n{(__doc__ or '').strip()}"
    size = f"{turns} turns of {asked(trials)} trials, {CONNECTIONS} requests in flight"
    text = "\n\n".join([title, f"On {machine()}; {size}.", tables, check_table(checks)]) + "\n"
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text)
    write_json(options.json, checks)


if __name__ == "__main__":
    main()
