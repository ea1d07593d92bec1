"""Trials a second on a real server: whole runs beside a bare loop of the same requests, and `vllm bench serve`.

    python benchmarks/engines.py [--quick] [--json PATH] [--markdown PATH]

One vLLM server on a CPU, with a tiny model; `tests/engines/run` installs the server. A run asks two models, the same
one at two temperatures, a fixed number of trials, and what counts is committed. The bare loop sends the same requests,
with the same prompts, seeds and settings, over as many connections, reads the answers' JSON, and grades and keeps
nothing. `vllm bench serve` sends as many requests with the same prompts, and has the answers streamed. The rates of a
run and of the bare loop leave out the first tenth of the trials and the last, in which a client begins and ends.

The speed of a shared machine changes from second to second. So a run and the bare loop are also let loose on the server
abreast, each with connections of its own: what the machine does happens to both, and a client that left its connections
idle would get fewer answers than the other in the same time, as does one that takes longer over an answer where the
processors have no time to spare. The rest take turns, each alone with the server.
"""

import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from tables import Check, arguments, check_table, machine, markdown, publish

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "tests" / "engines")]

from arithmetic import questions  # noqa: E402
from engine_runs import SAMPLING, Workplace  # noqa: E402
from engine_servers import VLLM_ENVIRONMENT, VLLM_PYTHON, Server, running, vllm  # noqa: E402
from family import base, checkpoints  # noqa: E402

from adaptive_eval.base.seeds import hashed_base  # noqa: E402
from adaptive_eval.store.database import DATABASE_FILE  # noqa: E402

TEMPERATURES = {"plain": 1.0, "cool": 0.9}
SEED, CONNECTIONS, TOGETHER = 2026, 32, 8
MANY = 20
"""Times as many requests as a run, so that the bare loop beside it does not come to its end first."""
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


class Span(NamedTuple):
    """What a run has committed between two moments."""

    trials: int
    begun: float
    ended: float

    @property
    def rate(self) -> float:
        return self.trials / (self.ended - self.begun)


def asked(trials: int) -> int:
    """How many trials that are in all."""
    return trials * len(questions()) * len(TEMPERATURES)


def run_of(server: Server, trials: int, together: int) -> Span:
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
            concurrency={"in_flight": CONNECTIONS // len(models), "samples_per_request": together},
        )
        # 3: such temperatures are hardly told apart
        workplace.run(config, accepted=(0, 3))
        with closing(sqlite3.connect(workplace.directory(config) / DATABASE_FILE)) as database:
            commits = [at for (at,) in database.execute("SELECT at FROM trials ORDER BY at")]
    assert len(commits) == asked(trials)
    return middle(commits)


def middle(times: Sequence[float]) -> Span:
    """Without the first tenth and the last, in which a client begins and ends."""
    first, last = len(times) // 10, len(times) * 9 // 10
    return Span(last - first, times[first], times[last])


def whole_run(server: Server, trials: int) -> float:
    """A run that is alone with the server."""
    return run_of(server, trials, 1).rate


def eight_together(server: Server, trials: int) -> float:
    """The same with eight answers to a request; as many requests, so that the run has found its pace here, too."""
    return run_of(server, TOGETHER * trials, TOGETHER).rate


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


@contextmanager
def bare(server: Server, trials: int) -> Iterator["subprocess.Popen[str]"]:
    """The bare loop in a process of its own."""
    command = [sys.executable, str(HERE / "engines_bare.py"), server.base_url, str(CONNECTIONS)]
    with tempfile.TemporaryFile("w+") as lines:
        lines.write("\n".join(json.dumps(body) for body in bodies(trials)))
        lines.seek(0)
        with subprocess.Popen(command, stdin=lines, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.terminate()


def times(process: "subprocess.Popen[str]") -> list[float]:
    """When the bare loop had each answer."""
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return [float(line) for line in said.splitlines()]


def bare_loop(server: Server, trials: int) -> float:
    """The same requests, and nothing else."""
    with bare(server, trials) as process:
        return middle(times(process)).rate


def abreast(server: Server, trials: int) -> float:
    """Trials of a run for each answer that a bare loop gets from the same server in the same time."""
    with bare(server, MANY * trials) as process:
        span = run_of(server, trials, 1)
        process.terminate()
        answered = times(process)
    assert answered[0] < span.begun < span.ended < answered[-1], "the bare loop was not at work all the time"
    return span.trials / sum(span.begun <= at <= span.ended for at in answered)


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
    assert result["completed"] == asked(trials), result.get("errors")
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


def measure(server: Server, trials: int, turns: int) -> tuple[dict[str, list[Speed]], list[float]]:
    """Each arm's speeds, and the ratios abreast; every other turn backwards, so that none is always first."""
    speeds: dict[str, list[Speed]] = {name: [] for name in ARMS}
    ratios: list[float] = []
    whole_run(server, 2)  # whatever a server does on its first requests
    for turn in range(turns):
        for name, arm in list(ARMS.items())[:: -1 if turn % 2 else 1]:
            before = server.cpu_seconds()
            rate = arm(server, trials)
            done = asked(trials) * (TOGETHER if arm is eight_together else 1)
            speeds[name].append(Speed(rate, 1e3 * (server.cpu_seconds() - before) / done))
            print(f"turn {turn + 1}: {name}: {rate:.0f} trials/s", file=sys.stderr, flush=True)
        ratios.append(abreast(server, trials))
        print(f"turn {turn + 1}: abreast: {ratios[-1]:.3f}", file=sys.stderr, flush=True)
    return speeds, ratios


def spread(values: Sequence[float], digits: int) -> str:
    """Median, and the range around it."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})"


def compare(speeds: dict[str, list[Speed]], side_by_side: list[float]) -> tuple[list[Check], str]:
    """The ratios to their goals, and the tables of what was measured."""
    rates = {name: [one.rate for one in found] for name, found in speeds.items()}
    run, bare, bench, eight = rates.values()
    found: dict[str, tuple[list[float], float | None]] = {
        "abreast: a run's trials for each of the bare loop": (side_by_side, 0.97),
        "alone: a run's trials/s over those of the bare loop": (quotients(run, bare), 0.97),
        "alone: a run's trials/s over those of vllm bench serve": (quotients(run, bench), 0.97),
        f"trials/s with {TOGETHER} answers a request over those with one": (quotients(eight, run), 3.0),
    }
    checks = []
    for name, (values, least) in found.items():
        middle = statistics.median(values)
        goal, holds = ("", None) if least is None else (f">= {least:g}", middle >= least)
        checks.append(Check(name, round(middle, 3), goal, holds))
    rows = [(name, spread([s.rate for s in of], 0), spread([s.cpu for s in of], 1)) for name, of in speeds.items()]
    measured = "median (least .. most)"
    header = ("alone with the server", f"trials/s, {measured}", f"the server's CPU ms a trial, {measured}")
    scatter = [(name, spread(values, 3)) for name, (values, _) in found.items()]
    return checks, "\n\n".join([markdown(header, rows), markdown(("ratio", measured), scatter)])


def quotients(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Turn by turn."""
    return [one / other for one, other in zip(over, under, strict=True)]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    trials, turns = (8, 1) if options.quick else (40, 7)
    with tempfile.TemporaryDirectory() as folder:
        server = vllm(checkpoints()[base()], Path(folder) / "vllm.log")
        with running(server):
            measured = measure(server, trials, turns)
    checks, tables = compare(*measured)
    title = f"# Engines\n\n{(__doc__ or '').strip()}"
    size = f"{turns} turns of {asked(trials)} requests, {CONNECTIONS} in flight for each client"
    text = "\n\n".join([title, f"On {machine()}; {size}.", tables, check_table(checks)]) + "\n"
    publish(options, text, checks)


if __name__ == "__main__":
    main()
