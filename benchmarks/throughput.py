"""How many requests and trials one core can do: clients, whole runs, lm-eval.

    python benchmarks/throughput.py [--quick] [--json PATH]

The client has one core and the server another. CPU time per request is the figure to compare: on a shared machine
wall time is not stable. One core does 1000 / (CPU ms) a second.

lm-eval lives in a virtual environment of its own, made on the first full run; `--quick` leaves it out.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tables import Check, arguments, at_least, at_most, markdown, publish

WORKER = Path(__file__).with_name("throughput_worker.py")
COMMAND = Path(sys.executable).with_name("adaptive-eval")
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]

CLIENTS = ("aiohttp", "httpx2 over aiohttp", "httpx2, its own pool", "openai SDK", "endpoint")
SLOW = {"httpx2, its own pool": 8, "openai SDK": 8}
"""These get so many times fewer requests."""
QUESTIONS, MODELS = 30, 2
LM_EVAL = "lm_eval[api]==0.4.13"


class Cost(NamedTuple):
    """What one request or trial took, and the memory of the whole process."""

    seconds: float
    cpu: float
    mib: float


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pinned(core: int) -> list[str]:
    """What puts a command on one core, where that can be done."""
    return ["taskset", "-c", str(CORES[core % len(CORES)])] if shutil.which("taskset") else []


@contextmanager
def one_reply(delay: float = 0.0) -> Iterator[str]:
    """A server on the second core, from when it listens until the end of the block."""
    port = free_port()
    command = [*pinned(1), sys.executable, str(WORKER), "serve", str(port), str(delay)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def load(client: str, url: str, in_flight: int, requests: int, rounds: int) -> Cost | None:
    """The cheapest of several rounds, since other programs on the machine only ever add; None where all failed.

    A client that is given no CPU for seconds may run into its own time limits: the SDK does, with 1,024 in flight.
    """
    command = [*pinned(0), sys.executable, str(WORKER), "load", client, url, str(in_flight), str(requests)]
    costs = []
    for _ in range(rounds):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            costs.append(Cost(**json.loads(done.stdout)))
        else:
            print(f"{client} failed with {in_flight} in flight: {done.stderr[-200:].strip()}", file=sys.stderr)
    return min(costs, key=lambda cost: cost.cpu, default=None)


# -- clients -----------------------------------------------------------------------------------------------------


def compare_clients(quick: bool) -> tuple[list[Check], str]:
    levels = (64, 1024) if quick else (64, 256, 1024)
    requests, rounds = (1500, 1) if quick else (12_000, 3)
    costs: dict[tuple[str, int], Cost] = {}
    rows: list[list[object]] = []
    with one_reply() as url:
        for client in CLIENTS:
            row: list[object] = [client]
            for level in levels:
                if level > levels[0] and quick and client in SLOW:
                    row.append("not tried")
                    continue
                count = max(requests // SLOW.get(client, 1), level)
                cost = load(client, url, level, count, 1 if client in SLOW else rounds)
                row.append("failed" if cost is None else cost.cpu * 1e3)
                if cost is not None:
                    costs[client, level] = cost
            memory = [cost.mib for (name, _), cost in costs.items() if name == client]
            rows.append([*row, round(max(memory, default=0.0))])
    checks = [
        at_most(f"endpoint: CPU ms a request, {level} in flight", costs["endpoint", level].cpu * 1e3, goal)
        for level, goal in ((64, 0.3), (1024, 0.4))
    ]
    ratio = costs["openai SDK", 64].cpu / costs["endpoint", 64].cpu
    checks.append(at_least("endpoint: times less CPU than the openai SDK alone", ratio, 3.0, 1))
    header = ["client, CPU ms a request", *(f"{level} in flight" for level in levels), "MiB at most"]
    return checks, markdown(header, rows)


# -- whole runs --------------------------------------------------------------------------------------------------


def configuration(url: str, in_flight: int, trials: int, folder: Path) -> Path:
    """A run of a fixed number of trials a question: what is measured is the machinery, not the statistics."""
    questions = [{"id": f"q{i}", "prompt": f"[q{i}] Which integer is meant?", "answer": "42"} for i in range(QUESTIONS)]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)) + "\n")
    model = {"base_url": url, "model": "m", "concurrency": in_flight // MODELS}
    config = {
        "name": "throughput",
        "questions": "questions.jsonl",
        "models": [{"name": f"m{i}", **model} for i in range(MODELS)],
        "prompt": "{prompt}\nPlease reason step by step, and put your final answer within \\boxed{}.",
        "grader": "numeric",
        "objective": "ranking",
        "trials": {"min": trials, "max": trials},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return path


def finished(command: list[str], accepted: tuple[int, ...] = (0,)) -> Cost:
    """Wall seconds, CPU seconds and MiB of a whole process on the first core."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*pinned(0), *command], stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in accepted:
            errors.seek(0)
            raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}\n{errors.read()[-2000:]}")
    return Cost(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def one_run(url: str, in_flight: int, trials: int) -> Cost:
    """A whole run; its seconds are those in which it was at work."""
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(url, in_flight, trials // (QUESTIONS * MODELS), Path(folder))
        command = [str(COMMAND), "run", str(config), "--run-dir", f"{folder}/run", "--display", "none"]
        # 3: the two models are the same, so that the trials end before anything is decided
        cost = finished(command, (0, 3))
        at_work = json.loads(Path(folder, "run", "results.json").read_text())["run"]["active_seconds"]
    return cost._replace(seconds=at_work)


def whole_runs(quick: bool) -> tuple[list[Check], str]:
    checks: list[Check] = []
    rows: list[list[object]] = []

    def measure(name: str, url: str, in_flight: int, few: int, many: int) -> tuple[float, Cost]:
        """Trials a second, and the cost of a trial with the start-up taken out by a shorter run."""
        short, long = one_run(url, in_flight, few), one_run(url, in_flight, many)
        rate, cpu = many / long.seconds, (long.cpu - short.cpu) / (many - few)
        rows.append([name, round(rate), cpu * 1e3, round(1.0 / cpu), round(long.mib)])
        return rate, Cost(1.0 / rate, cpu, long.mib)

    with one_reply() as url:
        for level in (64, 1024) if quick else (64, 256, 1024):
            _, cost = measure(f"no delay, {level}", url, level, 1200, 3600 if quick else 13_200)
            required = 2500 if level > 256 else 3000
            checks.append(at_least(f"trials/s of one core, {level} in flight", 1.0 / cost.cpu, required, 0))
        checks.append(at_most("MiB, 1,024 in flight", cost.mib, 250, 0))
        if not quick:
            theirs = [lm_eval(url, level) for level in (64, 1024)]
            rows += [row for row, _ in theirs]
            times = min(cpu for _, cpu in theirs) / cost.cpu
            checks.append(at_least("times less CPU than lm_eval", times, 2.0, 1))
    if not quick:
        with one_reply(0.5) as url:
            for level, waves, goal in ((512, 48, 0.95 * 1024), (2048, 16, 2800.0)):
                many = waves * level // 60 * 60
                rate, _ = measure(f"500 ms, {level}", url, level, 2 * level // 60 * 60, many)
                checks.append(at_least(f"trials/s at 500 ms, {level} in flight", rate, goal, 0))
    header = ["whole runs", "trials/s", "CPU ms a trial", "trials/s of one core", "MiB at most"]
    return checks, markdown(header, rows)


# -- lm-eval -----------------------------------------------------------------------------------------------------


def lm_eval_python() -> Path:
    """The interpreter of an environment with lm-eval, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "adaptive-eval"
    python = cache / LM_EVAL.replace("[api]", "") / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", "import lm_eval"]).returncode:
        venv.create(python.parents[1], with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", LM_EVAL]
        subprocess.run(pip, check=True)
    return python


def lm_eval(url: str, level: int, few: int = 1200, many: int = 9600) -> tuple[list[object], float]:
    """A row with so many requests in flight, and the CPU seconds of a sample."""
    command = [str(lm_eval_python()), str(WORKER.with_name("throughput_lm_eval.py")), url, str(level)]
    finished([*command, "60"])  # the first start compiles and reads hundreds of modules, which no later one does
    short, long = finished([*command, str(few)]), finished([*command, str(many)])
    cpu = (long.cpu - short.cpu) / (many - few)
    rate = (many - few) / (long.seconds - short.seconds)
    return [f"lm_eval, no delay, {level}", round(rate), cpu * 1e3, round(1.0 / cpu), round(long.mib)], cpu


def main() -> None:
    options = arguments(__doc__).parse_args()
    (of_clients, clients), (of_runs, runs) = compare_clients(options.quick), whole_runs(options.quick)
    about = "The client and the server have a core each."
    publish(options, "Throughput", about, clients, runs, checks=[*of_clients, *of_runs])


if __name__ == "__main__":
    main()
