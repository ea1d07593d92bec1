"""How often does a run name a winner between a command and itself? At most one run in ten may.

Whole runs as a user types them, `--command a=X --command b=X`: the command is a shell script whose score is random, by
question and seed, and each trial is a process of its own.

    python benchmarks/same_command.py [--quick] [--runs 200] [--first-seed N] [--json PATH]
"""

import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tables import Check, arguments, markdown, publish
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.core.types import Verdict
from adaptive_eval.report.results_file import read_results

SCRIPT = """\
#!/bin/sh
# Right with a chance of 10 to 86 of 100, by question; at random, by question and seed.
read -r line
id=${line##*\\"id\\": \\"q}; id=${id%%\\"*}
seed=${line##*\\"seed\\": }; seed=${seed%%[!0-9]*}
x=$(( ((seed & 2147483647) * 1103515245 + id * 40503) & 2147483647 ))
x=$(( ((x ^ (x >> 15)) * 739982445) & 2147483647 ))
x=$(( ((x ^ (x >> 12)) * 695872825) & 2147483647 ))
x=$(( x ^ (x >> 15) ))
[ $(( x % 100 )) -lt $(( id * 4 + 6 )) ] && score=1 || score=0
echo "{\\"score\\": $score}"
"""
QUESTIONS, MAX_TRIALS = 20, 10
RUNS, MOST_CALLED = 200, 0.10
MAX_OF_200 = 29
"""Of 200 runs of which one in ten names a winner, more than this do in less than 2.5%."""


class EndedRun(NamedTuple):
    """What a run has come to."""

    trials: int
    names_winner: bool
    scores: tuple[float, ...]


def rank_with_itself(seed: int) -> EndedRun:
    """A whole run of the command and itself, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="same-command-") as folder:
        os.chdir(folder)
        Path("agent.sh").write_text(SCRIPT)
        Path("agent.sh").chmod(0o755)
        rows = ({"id": f"q{number}", "prompt": f"Task {number}"} for number in range(1, QUESTIONS + 1))
        Path("tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
        commands = [word for name in ("a", "b") for word in ("--command", f"{name}=./agent.sh")]
        options = ["--max-trials", str(MAX_TRIALS), "--set", f"seed={seed}", "--display", "plain"]
        ended = CliRunner().invoke(app, ["run", "tasks.jsonl", *commands, *options])
        if ended.exit_code not in (ExitCode.REACHED, ExitCode.SPENT):
            raise RuntimeError(ended.output) from ended.exception
        results = read_results(Path("runs/tasks"))
        os.chdir("/")
    assert results is not None
    verdicts = [pair.verdict for pair in results.pairs]
    return EndedRun(
        sum(row.trials for row in results.models),
        Verdict.RESOLVED in verdicts,
        tuple(row.score for row in results.models if row.score is not None),
    )


def main() -> None:
    parser = arguments(__doc__, runs=RUNS, quick_runs=1)
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first run, to make runs in parts")
    options = parser.parse_args()
    runs = options.runs
    with ProcessPoolExecutor() as pool:
        ended = list(pool.map(rank_with_itself, range(options.first_seed, options.first_seed + runs)))
    trials, named = sum(run.trials for run in ended), sum(run.names_winner for run in ended)
    score = sum(sum(run.scores) for run in ended) / (2 * runs)
    row = (f"{QUESTIONS} questions, --max-trials {MAX_TRIALS}", runs, trials // runs, score, named, named / runs)
    header = ("runs of", "runs", "trials of a run", "mean score", "named a winner", "share")
    holds = None if runs < RUNS else named <= MAX_OF_200 * runs / RUNS
    checks = [Check("runs that name a winner", named / runs, f"at most {MOST_CALLED}", holds)]
    publish(options, "A command against itself", __doc__, markdown(header, [row]), checks=checks)


if __name__ == "__main__":
    main()
