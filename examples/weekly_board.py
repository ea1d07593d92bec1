"""A board that is kept week after week: each new checkpoint is placed among all models so far, and asked alone.

    pip install .                # in a checkout of adaptive-eval
    python examples/weekly_board.py [FOLDER]

In the first week, outcomes of twenty models are imported from a table, as another harness might have left them. Then
each week one new checkpoint is ranked among the models that the week before has handed on, so that the report of the
newest run is the leaderboard. The checkpoints are models of the simulator, so that nothing is needed but this file; put
yours in their place, with their `base_url`.
"""

import csv
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

QUESTIONS, TRIALS = 30, 16
ELDERS = {f"elder-{number:02d}": number / 21 for number in range(1, 21)}
"""The twenty models of the table, and how often each is right."""
CHECKPOINTS = ("coin-05", "coin-08")


def command(*words: str, folder: Path) -> None:
    """Run a command of adaptive-eval, and show the end of what it says."""
    print(f"\n$ adaptive-eval {' '.join(words)}")
    called = [sys.executable, "-m", "adaptive_eval", *words]
    done = subprocess.run(called, cwd=folder, capture_output=True, text=True, check=False)
    print("\n".join(done.stdout.splitlines()[-30:]))
    if done.returncode not in (0, 3):  # 3: some comparisons are left undecided
        raise SystemExit(done.stderr)


def write_table(path: Path) -> None:
    """Outcomes of the twenty models, one row a trial."""
    chance = random.Random(7)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "question", "trial", "correct"])
        for model, skill in ELDERS.items():
            for question in range(1, QUESTIONS + 1):
                for trial in range(TRIALS):
                    rows.writerow([model, f"q{question}", trial, int(chance.random() < skill)])


def write_config(path: Path, before: Path, known: list[str], checkpoint: str) -> None:
    """One week: who is known is recorded in the run of the week before."""
    recorded = [{"name": name, "recorded": str(before)} for name in known]
    models = [{"name": checkpoint, "simulate": True}, *recorded]
    sections = {
        "questions": {"world": "coins"},
        "grader": "math",
        "objective": "place",
        "trials": {"max": TRIALS},
        "models": models,
    }
    path.write_text(json.dumps(sections, indent=1))


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="weekly-board-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "elders.csv")
    known, before = list(ELDERS), folder / "runs" / "week-0"
    command("import", "elders.csv", "--to", str(before), "--finished", folder=folder)
    for week, checkpoint in enumerate(CHECKPOINTS, 1):
        name = f"week-{week}"
        write_config(folder / f"{name}.yaml", before, known, checkpoint)
        command("run", f"{name}.yaml", folder=folder)
        known, before = [*known, checkpoint], folder / "runs" / name
    command("compare", str(before.with_name("week-1")), str(before), folder=folder)
    command("report", str(before), "--output", "board.html", folder=folder)
    print(f"\n{folder / 'board.html'} is the board")


if __name__ == "__main__":
    main()
