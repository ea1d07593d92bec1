"""A weekly leaderboard: each new checkpoint is placed among all earlier models, and only the checkpoint is asked.

    pip install .                # in a checkout of adaptive-eval
    python examples/weekly_board.py [FOLDER]

In the first week, outcomes of twenty models are imported from a table, such as another harness may write. Then each
week one new checkpoint is ranked among the models of the previous week, so the report of the latest run is the
leaderboard. The checkpoints are simulated, so this file needs nothing else; replace them by yours, with `base_url`.
"""

import csv
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

QUESTIONS, TRIALS = 30, 16
SKILLS = {f"elder-{number:02d}": number / 21 for number in range(1, 21)}
"""The twenty models of the table, with their probability of a right answer."""
CHECKPOINTS = ("coin-05", "coin-08")


def run_command(*words: str, folder: Path) -> None:
    """Run a command of adaptive-eval, and show the end of its output."""
    print(f"\n$ adaptive-eval {' '.join(words)}")
    command = [sys.executable, "-m", "adaptive_eval", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print("\n".join(done.stdout.splitlines()[-30:]))
    if done.returncode not in (0, 3):  # 3: some comparisons are undecided
        raise SystemExit(done.stderr)


def write_table(path: Path) -> None:
    """Write outcomes of the twenty models, one row per trial."""
    rng = random.Random(7)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "question", "trial", "correct"])
        for model, skill in SKILLS.items():
            for question in range(1, QUESTIONS + 1):
                for trial in range(TRIALS):
                    rows.writerow([model, f"q{question}", trial, int(rng.random() < skill)])


def write_config(path: Path, before: Path, earlier: list[str], checkpoint: str) -> None:
    """Write the configuration of one week, with the outcomes of earlier models from the run of the previous week."""
    recorded = [{"name": name, "recorded": str(before)} for name in earlier]
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
    earlier, before = list(SKILLS), folder / "runs" / "week-0"
    run_command("import", "elders.csv", "--to", str(before), "--finished", folder=folder)
    for week, checkpoint in enumerate(CHECKPOINTS, 1):
        name = f"week-{week}"
        write_config(folder / f"{name}.yaml", before, earlier, checkpoint)
        run_command("run", f"{name}.yaml", folder=folder)
        earlier, before = [*earlier, checkpoint], folder / "runs" / name
    run_command("compare", str(before.with_name("week-1")), str(before), folder=folder)
    run_command("report", str(before), "--output", "board.html", folder=folder)
    print(f"\n{folder / 'board.html'} is the leaderboard")


if __name__ == "__main__":
    main()
