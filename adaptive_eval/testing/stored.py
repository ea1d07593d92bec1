"""A small stored run, for whoever reads or draws one: imported, so that no server is asked."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from adaptive_eval.exchange.configure import ImportRequest
from adaptive_eval.exchange.importing import import_logs

MODELS = ("cyd", "ada", "dan", "bob")
"""In the order of the run, which is neither that of the names nor that of the scores."""
QUESTIONS = ("q3", "q1", "q2", "q4", "q5")
RIGHT = {"cyd": 0.25, "ada": 0.8, "dan": 0.6, "bob": 0.4}
"""The share of right answers."""
TRIALS = 8


def made_up_rows(models: Sequence[str] = MODELS) -> list[dict[str, object]]:
    """A row for each trial; numbers of trials differ by model, and one answer is not graded.

    Every text boxes a number that is not the key: no grader gives these grades, and none needs a process to say so.
    """
    rows: list[dict[str, object]] = []
    for at, (name, share) in enumerate(zip(models, RIGHT.values(), strict=True)):
        for place, question in enumerate(QUESTIONS):
            for trial in range(TRIALS + at % 2):
                right = (7 * trial + 3 * place + at) % 10 < 10 * share
                row = {"model": name, "question": question, "trial": trial, "category": int(right)}
                rows.append(
                    row
                    | {"text": f"{name}, {place}, {trial}: \\boxed{{2}}", "prompt": question, "answer": "1"}
                    | {"tokens": 9 + at}
                )
    del rows[-1]["category"]
    rows[-1]["grader_error"] = "nobody graded it"
    return rows


@contextmanager
def stored_run(rows: Sequence[dict[str, object]] | None = None) -> Iterator[Path]:
    """The directory of a finished run with these trials."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trials.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in (made_up_rows() if rows is None else rows)))
        directory = Path(folder) / "run"
        import_logs(ImportRequest([str(path)], directory, finished=True))
        yield directory
