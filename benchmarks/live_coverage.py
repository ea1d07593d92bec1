"""Whether the intervals of runs over HTTP contain the true score under each of the schemata of the Bayes@N paper.

    python benchmarks/live_coverage.py [--quick] [--runs 200] [--schema NAME ...] [--minutes M] [--rows PATH]
                                       [--json PATH] [--markdown PATH]

As `rubric_coverage.py` and of the same size (3 models, 30 questions, 4 to 24 trials a question), but every run is live:
models, a verifier and a grader beside it, all requests over HTTP, and a store. The grader is `math` where the schema
asks for a box, which starts a process for answers without one, and else `numeric`. The world's 200 answers of each
model to each question are known in every respect. The thresholds of a schema are fitted on the opening of each run and
frozen; the true score is the mean of all answers under these very thresholds. Exact Match and Length-Robust are one
rubric.

A run has three scores, which share their thresholds and their questions. So runs are counted, not scores: a run's share
of scores whose interval contains the truth is one observation, and the standard error of the coverage is that of the
mean of these shares. All schemata have the same seeds, so that rows are not independent of each other either.

Runs are made in one process, one seed after the other under all schemata. With --rows they are kept in a file, and
another start with the same file goes on with the next seeds; --minutes ends it in time. All of them take about an hour
of the processor. Each is set beside the same run without HTTP. A threshold is often the very value of an answer, or of
a question, and numbers that came over HTTP may differ in the last digit. So the truth goes by the thresholds of the run
without HTTP, which have to be the same to nine digits; and now and then one answer of a live run is in the category
beside.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rubric_coverage import HIGH, LOW, RunEnd, drawn_answers, is_same, population_of, run_live, run_without_http
from tables import Check, arguments, check_table, machine, markdown, publish

from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency, World, schemata
from scorio.categorical import SCHEMATA, Schema, Thresholds

QUICK = 2
ENOUGH = 100
"""Runs from which on a coverage is judged: the standard error of fewer is as wide as what it is to be in."""


class LiveRow(NamedTuple):
    """One run under one schema."""

    schema: str
    seed: int
    trials: int
    errors: tuple[float, ...]
    """Score less truth, of each model."""
    sigmas: tuple[float, ...]
    covered: tuple[bool, ...]
    same: bool
    """Decisions made without HTTP on the same answers come to the same."""
    cpu: float
    """Seconds, with those of the servers; a process of the grader has its own."""


def quick_world() -> World:
    """As the simulator serves it, but at once."""
    made = schemata()
    return World(made.name, made.p, latency=Latency(median=0.0005), population=made.population)


def one_row(world: World, schema: Schema, seed: int, url: str, alone: RunEnd) -> LiveRow:
    """A live run, beside `alone`, the same without HTTP."""
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        beside = "math" if "has_box" in schema.signals else "numeric"
        end = run_live(world, schema, seed, url, Path(folder), beside)
    cpu = time.process_time() - begun
    truth = population_of(world).scores(schema, Thresholds(**alone.thresholds))
    errors = end.scores - truth
    covered = np.abs(errors) <= end.halves
    return LiveRow(
        schema.name,
        seed,
        end.trials,
        tuple(errors.tolist()),
        tuple(end.sigmas.tolist()),
        tuple(covered.tolist()),
        is_same(end, alone),
        cpu,
    )


def kept_rows(path: Path | None) -> list[LiveRow]:
    """Those of earlier starts."""
    if path is None or not path.exists():
        return []
    return [LiveRow(**json.loads(line)) for line in path.read_text().splitlines()]


def new_rows(names: set[str], seeds: range, until: float, done: set[tuple[str, int]]) -> Iterator[LiveRow]:
    """Runs under the schemata of these names that are not done yet, until that time."""
    world = quick_world()
    with serving(SimulatedServer(world)) as url:
        for seed in seeds:
            wanted = [one for one in SCHEMATA.values() if one.name in names and (one.name, seed) not in done]
            if not wanted:
                continue
            serials = drawn_answers(world, seed)
            for schema in wanted:
                if time.monotonic() > until:
                    return
                yield one_row(world, schema, seed, url, run_without_http(world, schema, serials))


def row_of_table(schema: Schema, own: list[LiveRow]) -> tuple[tuple[object, ...], float, float]:
    """What the table says of a schema, with its coverage and the standard error of that."""
    shares = np.array([np.mean(one.covered) for one in own])
    error = float(shares.std(ddof=1) / np.sqrt(len(shares))) if len(shares) > 1 else float("nan")
    z = np.array([one.errors for one in own]) / np.array([one.sigmas for one in own])
    trials = round(float(np.mean([one.trials for one in own])))
    bias = float(np.mean([one.errors for one in own]))
    coverage = float(shares.mean())
    row = (schema.title, len(own), len(own) * len(own[0].covered), trials, coverage, error, float(z.std()), bias)
    return row, coverage, error


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--runs", type=int, default=200, help="of each schema")
    parser.add_argument("--schema", nargs="+", metavar="NAME", help="these alone")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no run is begun later")
    parser.add_argument("--rows", type=Path, metavar="PATH", help="where runs are kept, and gone on from")
    options = parser.parse_args()
    rows = kept_rows(options.rows)
    seeds = range(QUICK if options.quick else options.runs)
    names = set(options.schema or SCHEMATA) - {"length_robust"}
    done = {(one.schema, one.seed) for one in rows}
    for row in new_rows(names, seeds, time.monotonic() + 60.0 * options.minutes, done):
        rows.append(row)
        if options.rows is not None:
            with options.rows.open("a") as file:
                file.write(json.dumps(row._asdict()) + "\n")
    table, checks = [], []
    for schema in SCHEMATA.values():
        if own := [one for one in rows if one.schema == schema.name]:
            line, coverage, error = row_of_table(schema, own)
            table.append(line)
            holds = LOW <= round(coverage, 3) <= HIGH if len(own) >= ENOUGH else None
            told = f"{schema.name}: 95% intervals that contain the truth (standard error {error:.3f})"
            checks.append(Check(told, round(coverage, 3), "0.93-0.97", holds))
    same = sum(one.same for one in rows)
    checks.append(Check(f"{len(rows)} live runs that found what is found without HTTP", same, str(len(rows)), None))
    checks[-1] = checks[-1]._replace(holds=same == len(rows))
    cpu = np.array([one.cpu for one in rows])
    parts = [
        "# Coverage under the schemata, over HTTP",
        (__doc__ or "").strip(),
        f"On {machine()}; {len(rows)} live runs, {float(cpu.mean()):.2f} CPU seconds each in the mean.",
        "*trials*: of a run, in the mean. *error*: standard error of the coverage, over runs. *sd of z*: standard "
        "deviation of score less truth over sigma. *bias*: mean of score less truth.",
        markdown(("schema", "runs", "scores", "trials", "coverage", "error", "sd of z", "bias"), table),
        check_table(checks),
    ]
    publish(options, "\n\n".join(parts), checks)


if __name__ == "__main__":
    main()
