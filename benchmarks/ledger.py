"""What it costs to write down each request before it is sent, as caps on tokens, USD and GPU hours need.

    python benchmarks/ledger.py [--quick] [--json PATH] [--markdown PATH]

The same run, 64 requests in flight, with a cap on tokens that it never meets, and without: in turn, pair by pair. The
server answers at once, or after 100 ms. CPU time of a trial is what many trials take beyond few.
"""

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tables import Check, arguments, check_table, machine, markdown, publish
from throughput import COMMAND, MODELS, QUESTIONS, configuration, finished, one_reply

IN_FLIGHT = 64
CAP = 10**12
MOST_SHARE = 0.05
DELAYS = (0.0, 0.1)


class Trial(NamedTuple):
    """What one takes."""

    cpu: float
    seconds: float


def trial(url: str, capped: bool, few: int, many: int) -> Trial:
    """CPU and wall seconds of a trial, start-up taken out."""
    (cpu, seconds), (more_cpu, more_seconds) = (whole(url, capped, trials) for trials in (few, many))
    return Trial((more_cpu - cpu) / (many - few), (more_seconds - seconds) / (many - few))


def whole(url: str, capped: bool, trials: int) -> Trial:
    """A whole run; its seconds are those in which it was at work."""
    with tempfile.TemporaryDirectory() as folder:
        path = configuration(url, IN_FLIGHT, trials // (QUESTIONS * MODELS), Path(folder))
        config = json.loads(path.read_text()) | {"sampling": {"max_tokens": 512}, "stop_on_alarm": "never"}
        path.write_text(json.dumps(config | ({"budget": {"tokens": CAP}} if capped else {})))
        cost = finished([str(COMMAND), "run", str(path), "--run-dir", f"{folder}/run", "--display", "none"], (0, 3))
        at_work = json.loads(Path(folder, "run", "results.json").read_text())["run"]["active_seconds"]
    return Trial(cost.cpu, at_work)


def pairs(delay: float, number: int, few: int, many: int) -> Iterator[tuple[Trial, Trial]]:
    """With and without, the order changing from pair to pair."""
    with one_reply(delay) as url:
        for turn in range(number):
            order = (True, False) if turn % 2 else (False, True)
            found = {capped: trial(url, capped, few, many) for capped in order}
            yield found[True], found[False]


def main() -> None:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    number, few, many = (1, 600, 3000) if options.quick else (7, 600, 4800)
    rows: list[tuple[object, ...]] = []
    checks: list[Check] = []
    for delay in DELAYS:
        found = list(pairs(delay, number, few, many))
        shares = sorted(capped.cpu / plain.cpu - 1.0 for capped, plain in found)
        share = statistics.median(shares)
        name = f"a server that answers {f'after {1000 * delay:.0f} ms' if delay else 'at once'}"
        for word, side in (("with", 0), ("without", 1)):
            cpu = statistics.median(pair[side].cpu for pair in found)
            rate = 1.0 / statistics.median(pair[side].seconds for pair in found)
            rows.append((f"{name}, {word}", f"{1e3 * cpu:.3f}", round(rate)))
        said = f"{share:.1%} ({shares[0]:.1%} to {shares[-1]:.1%})"
        checks.append(Check(f"CPU of a trial, {name}: more with the ledger", said, "< 5%", share < MOST_SHARE))
    publish(options, _document(rows, checks, number, many), checks)


def _document(rows: list[tuple[object, ...]], checks: list[Check], number: int, trials: int) -> str:
    return "\n\n".join(
        [
            "# The ledger of requests in flight",
            f"What `benchmarks/ledger.py` prints: {number} pairs of runs of {trials} trials, {IN_FLIGHT} in flight, "
            "with a cap on tokens, so that each request is in the store before it is sent, and without. Medians.",
            check_table(checks),
            markdown(("run", "CPU ms a trial", "trials/s"), rows),
            "A request waits for the next group commit, 20 ms at most and one write to disk, before it is sent: beside "
            "answers that take seconds that is nothing, and a server that answers at once shows it.",
            f"{machine()}.",
        ]
    )


if __name__ == "__main__":
    main()
