"""How many requests and trials one core can do: clients, the simulated server, whole runs, other harnesses.

    python benchmarks/throughput.py [--quick] [--json PATH] [--markdown PATH]

The client has one core and the server another. CPU time per request is the figure to compare: on a shared machine
wall time is not stable. One core does 1000 / (CPU ms) a second.

The harnesses live in a virtual environment of their own, made on the first full run (about 1 GB); `--quick` leaves
them out. lighteval is not among them: it needs torch, and two of its dependencies repaired, to run without a network.
"""

import json
import math
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

from tables import Check, arguments, check_table, machine, markdown, publish

WORKER = Path(__file__).with_name("throughput_worker.py")
COMMAND = Path(sys.executable).with_name("adaptive-eval")
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]

CLIENTS = (
    "aiohttp", "httpx2 over aiohttp", "httpx2, its own pool", "openai SDK", "openai SDK over aiohttp", "endpoint",
    "endpoint, client: openai",
)  # fmt: skip
SLOW = {client: 8 for client in CLIENTS if "openai" in client or "its own pool" in client}
"""These get so many times fewer requests."""
QUESTIONS, MODELS = 30, 2
PEERS = ("inspect_ai==0.3.285", "lm_eval[api]==0.4.13", "openai==3.51.0")


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
def running(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server on the second core, from when it listens until the end of the block."""
    process = subprocess.Popen(pinned(1) + command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def one_reply(delay: float = 0.0) -> Iterator[str]:
    port = free_port()
    with running([sys.executable, str(WORKER), "serve", str(port), str(delay)], port):
        yield f"http://127.0.0.1:{port}/v1"


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


# -- clients and the server --------------------------------------------------------------------------------------


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
    goals = {levels[0]: 0.3, levels[-1]: 0.4}
    spent = {level: costs["endpoint", level].cpu * 1e3 for level in goals}
    ratio = costs["openai SDK", levels[0]].cpu / costs["endpoint", levels[0]].cpu
    checks = [
        *(
            Check(
                f"endpoint: CPU ms a request, {level} in flight",
                round(spent[level], 3),
                f"<= {goal}",
                spent[level] <= goal,
            )
            for level, goal in goals.items()
        ),
        Check("endpoint: times less CPU than the openai SDK alone", round(ratio, 1), ">= 3", ratio >= 3),
    ]
    header = ["client, CPU ms a request", *(f"{level} in flight" for level in levels), "MiB at most"]
    return checks, markdown(header, rows)


def server_rate(quick: bool) -> tuple[list[Check], str]:
    """CPU time of the simulated server per request, from /proc, with our client as the load."""
    port = free_port()
    command = [str(COMMAND), "simulate", "coins", "--port", str(port), "--fault", "slow=0"]
    rows, rates = [], []
    with running(command, port) as process:
        for level in (64, 1024):
            requests = 2000 if quick else 12_000
            before = _cpu_of(process.pid)
            if load("simulated", f"http://127.0.0.1:{port}/v1", level, requests, 1) is None:
                raise SystemExit("the simulated server could not be loaded")
            per_request = (_cpu_of(process.pid) - before) / (requests + 2 * level)
            rows.append([f"{level} in flight", per_request * 1e3, round(1.0 / per_request)])
            rates.append(round(1.0 / per_request))
    slowest = min(rates)
    return [Check("simulated server: requests/s of one core", slowest, ">= 8,000", slowest >= 8000)], markdown(
        ["simulated server", "CPU ms a request", "requests/s of one core"], rows
    )


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
            rate = 1.0 / cost.cpu
            required = 2500 if level > 256 else 3000
            checks.append(
                Check(f"trials/s of one core, {level} in flight", round(rate), f">= {required:,}", rate >= required)
            )
        checks.append(Check("MiB, 1,024 in flight", round(cost.mib), "< 250", cost.mib < 250))
        if not quick:
            best = harnesses(url, rows)
            checks += [
                Check(f"times less CPU than {peer}", round(theirs / cost.cpu, 1), goal, theirs >= times * cost.cpu)
                for (peer, theirs), (goal, times) in zip(best.items(), ((">= 2", 2), (">= 40", 40)), strict=True)
            ]
    if not quick:
        with one_reply(0.5) as url:
            for level, waves, goal in ((512, 48, 0.95 * 1024), (2048, 16, 2800.0)):
                many = waves * level // 60 * 60
                rate, _ = measure(f"500 ms, {level}", url, level, 2 * level // 60 * 60, many)
                name = f"trials/s at 500 ms, {level} in flight"
                checks.append(Check(name, round(rate), f">= {goal:,.0f}", rate >= goal))
    header = ["whole runs", "trials/s", "CPU ms a trial", "trials/s of one core", "MiB at most"]
    return checks, markdown(header, rows)


# -- other harnesses ---------------------------------------------------------------------------------------------


def peers_python() -> Path:
    """The interpreter of an environment with the harnesses, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "adaptive-eval"
    python = cache / "-".join(PEERS).replace("[api]", "") / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", "import inspect_ai, lm_eval"]).returncode:
        venv.create(python.parents[1], with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *PEERS]
        subprocess.run(pip, check=True)
    return python


def harnesses(url: str, rows: list[list[object]]) -> dict[str, float]:
    """Adds a row for each harness and level; gives each one's smallest CPU seconds a sample."""
    python = str(peers_python())
    best: dict[str, float] = {}
    for peer, few, many in (("lm_eval", 1200, 9600), ("inspect_ai", 1050, 2100)):
        for level in (64, 1024):
            command = [python, str(WORKER.with_name("throughput_peers.py")), peer, url, str(level)]
            if level == 64:
                # the first start compiles and reads hundreds of modules, which no later one does
                finished([*command, "60"])
            short, long = finished([*command, str(few)]), finished([*command, str(many)])
            cpu = (long.cpu - short.cpu) / (many - few)
            rate = (many - few) / (long.seconds - short.seconds)
            rows.append([f"{peer}, no delay, {level}", round(rate), cpu * 1e3, round(1.0 / cpu), round(long.mib)])
            best[peer] = min(cpu, best.get(peer, math.inf))
    return best


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    checks: list[Check] = []
    parts = [
        "# Throughput\n\n`python benchmarks/throughput.py`",
        f"On {machine()}; the client and the server have a core each.",
    ]
    for part in (compare_clients, server_rate, whole_runs):
        results, table = part(options.quick)
        checks += results
        parts.append(table)
    parts.append(check_table(checks))
    publish(options, "\n\n".join(parts), checks)


if __name__ == "__main__":
    main()
