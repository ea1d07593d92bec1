"""A run on servers that fail in every way at once ends exactly as on servers that do not.

    python benchmarks/faults.py [--quick] [--json PATH] [--markdown PATH]

Two replicas serve four models. In the first run nothing goes wrong. In the second 10% of the requests get a 500, 5% a
reset, 2% never an answer, both replicas refuse everything for a while (429), and one of them dies and comes back. In
the third one replica falls silent in the middle: its connections stay open, nothing is answered, and its health check
says so. In the fourth the process is killed several times while all of the second happens.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.record.ending import Ended
from adaptive_eval.running.execute import execute
from adaptive_eval.running.watching import Display
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.faults import Faults, TimeWindow
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency, World, many_close
from adaptive_eval.store import RunReader, StoredLook

LATENCY = Latency(median=0.05)
TIME_LIMIT = 1.0
"""Seconds for one request in the second run, where hangs last for ever; in the third it is `PATIENT`."""
PATIENT = 300.0
NOTICED_WITHIN = 30.0
"""Seconds that a silent replica may cost: its health check is asked every few seconds."""

KILLED_AFTER = 3.0

MIXED = Faults(server_error=0.10, reset=0.05, hang=0.02)
STORM = (TimeWindow(1.0, 1.5), TimeWindow(6.0, 1.5))


@dataclass(frozen=True)
class Outcome:
    """Everything that a run has found and decided, and what it went through."""

    trials: dict[tuple[str, str, int], tuple[int | None, str]]
    """Category and text of each."""
    stored: int
    looks: list[StoredLook]
    results: dict[str, object]
    seconds: float
    retries: int
    """By the last process."""
    requests: Counter[str]


@dataclass(frozen=True)
class Scenario:
    """A name, what happens to each of the two replicas, the time limit of a request, and kills of the client."""

    name: str
    faults: tuple[Faults, Faults]
    time_limit: float = PATIENT
    kills: int = 0


def scenarios() -> list[Scenario]:
    first = replace(MIXED, storm=STORM, seed=1)
    second = replace(MIXED, storm=STORM, seed=2, down=(TimeWindow(3.0, 2.0),))
    return [
        Scenario("no faults", (Faults(), Faults())),
        Scenario("faults of every kind", (first, second), TIME_LIMIT),
        Scenario("a replica falls silent", (Faults(), Faults(stuck=(TimeWindow(1.2, 600.0),)))),
        Scenario("faults and kills", (first, second), TIME_LIMIT, kills=3),
    ]


@dataclass(frozen=True)
class Size:
    """How large the runs are, of models too close together to be told apart."""

    world: World
    trials: int
    concurrency: int


QUICK = Size(many_close(models=3, questions=12), trials=8, concurrency=3)
FULL = Size(many_close(models=4, questions=30), trials=30, concurrency=16)


def configuration(folder: Path, urls: list[str], scenario: Scenario, size: Size) -> Path:
    """The run's configuration; the scenario changes only how it is carried out."""
    rows = "\n".join(json.dumps(row) for row in question_rows(size.world))
    (folder / "questions.jsonl").write_text(rows)
    settings = {
        "questions": "questions.jsonl",
        "models": [{"name": model, "base_url": urls} for model in size.world.models],
        "sampling": {"temperature": 0.6, "max_tokens": 4000, "timeout": scenario.time_limit},
        "grader": "math",
        "trials": {"min": 4, "max": size.trials, "policy": "uniform"},
        "stopping": {"rule": "published", "prior": "uniform"},  # gives nothing up, so that every trial is needed
        "concurrency": {"in_flight": size.concurrency, "attempts": 12},
    }
    path = folder / "faults.yaml"
    path.write_text(json.dumps(settings))
    return path


def carry_out(scenario: Scenario, size: Size) -> Outcome:
    """One run, from nothing to its end."""
    servers = [SimulatedServer(replace(size.world, latency=LATENCY), faults=faults) for faults in scenario.faults]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        urls = [stack.enter_context(serving(server)) for server in servers]
        config, directory = configuration(folder, urls, scenario, size), folder / "run"
        began = time.monotonic()
        for _ in range(scenario.kills):
            killed(config, directory)
        ends: list[Ended] = []
        asyncio.run(execute(prepare(load_config(config)), directory, Display(), ends.append))
        seconds, retries = time.monotonic() - began, ends[0].status.traffic.retries
        return read(directory, seconds, retries, sum((server.counts for server in servers), Counter()))


def killed(config: Path, directory: Path) -> None:
    """The same run in a process of its own, killed a few seconds into it."""
    command = [sys.executable, "-m", "adaptive_eval", "run", str(config)]
    with subprocess.Popen([*command, "--run-dir", str(directory), "--display", "none"]) as process:
        try:
            process.wait(timeout=KILLED_AFTER)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)


def read(directory: Path, seconds: float, retries: int, requests: Counter[str]) -> Outcome:
    with closing(RunReader.open(directory)) as reader:
        records = list(reader.trials())
        looks = list(reader.looks())
    trials = {
        (record.model, record.question, record.trial): (record.category, record.answer.text) for record in records
    }
    results = json.loads((directory / "results.json").read_text())
    return Outcome(trials, len(records), looks, results, seconds, retries, requests)


def compare(reference: Outcome, other: Outcome, name: str) -> Iterator[Check]:
    """That nothing was lost, doubled, changed or decided otherwise."""
    lost = len(reference.trials.keys() - other.trials.keys())
    doubled = other.stored - len(other.trials) + len(other.trials.keys() - reference.trials.keys())
    changed = sum(other.trials[key] != value for key, value in reference.trials.items() if key in other.trials)
    yield Check(f"{name}: trials lost", lost, "0", lost == 0)
    yield Check(f"{name}: trials counted twice or added", doubled, "0", doubled == 0)
    yield Check(f"{name}: answers or grades changed", changed, "0", changed == 0)
    for what, found in (("models", "estimates"), ("pairs", "verdicts"), ("questions", "posteriors")):
        same = same_but_costs(reference.results[what]) == same_but_costs(other.results[what])
        yield Check(f"{name}: final {found} equal", "yes" if same else "no", "yes", same)
    same = reference.looks == other.looks
    yield Check(f"{name}: all {len(reference.looks)} looks equal", "yes" if same else "no", "yes", same)


def same_but_costs(rows: object) -> object:
    """Rows without what depends on time: how long servers and GPUs are busy or held is a matter of latency."""
    assert isinstance(rows, list)
    return [{key: value for key, value in row.items() if not key.endswith("_seconds")} for row in rows]


def silence(reference: Outcome, silent: Outcome) -> Iterator[Check]:
    """That a replica which stops answering is noticed by its health, not by the time limit."""
    lost = silent.seconds - reference.seconds
    yield Check("requests taken back from the silent replica", silent.retries, "some", silent.retries > 0)
    goal = f"under {NOTICED_WITHIN:g}, with a time limit of {PATIENT:g}"
    yield Check("seconds that the silent replica cost", round(lost, 1), goal, lost < NOTICED_WITHIN)


def show(outcomes: dict[str, Outcome], checks: list[Check]) -> str:
    """The document."""
    kinds = sorted({kind for outcome in outcomes.values() for kind in outcome.requests})
    header = ("run", "trials", "looks", "seconds", "retries", *kinds)
    rows = [
        (name, one.stored, len(one.looks), round(one.seconds, 1), one.retries, *(one.requests[kind] for kind in kinds))
        for name, one in outcomes.items()
    ]
    title = f"# Faults\n\n{(__doc__ or '').strip()}\n\nOn {machine()}; requests by what the servers did with them."
    return "\n\n".join([title, markdown(header, rows), check_table(checks)]) + "\n"


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    outcomes = {}
    for scenario in scenarios():
        print(f"{scenario.name} ...", file=sys.stderr, flush=True)
        outcomes[scenario.name] = carry_out(scenario, QUICK if options.quick else FULL)
    reference, *others = outcomes.items()
    checks = [check for name, outcome in others for check in compare(reference[1], outcome, name)]
    checks += silence(reference[1], outcomes["a replica falls silent"])
    text = show(outcomes, checks)
    publish(options, text, checks)
    sys.exit(0 if all(check.holds for check in checks) else 1)


if __name__ == "__main__":
    main()
