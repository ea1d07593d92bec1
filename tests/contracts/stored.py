"""A small stored run, for whoever reads or draws one: imported, so that no server is asked."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from adaptive_eval.config.fingerprint import differences
from adaptive_eval.exchange.configure import ImportRequest
from adaptive_eval.exchange.importing import import_logs
from adaptive_eval.machine.records import SET_ASIDE, Dropped, Note
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.write import RunStore

MODELS = ("cyd", "ada", "dan", "bob")
"""Models in the order of the run, which is neither that of the names nor that of the scores."""
QUESTIONS = ("q3", "q1", "q2", "q4", "q5")
RIGHT = {"cyd": 0.25, "ada": 0.8, "dan": 0.6, "bob": 0.4}
"""The share of right answers."""
TRIALS = 8
MANY = 13
"""Models and questions of a run in which no list is short."""


def many_rows() -> list[dict[str, object]]:
    """A row for each trial of a run with `MANY` models and questions, three trials each."""
    return [
        {
            "model": f"model-{'abcdefghijklm'[at]}",
            "question": f"question-{place}",
            "trial": trial,
            "category": int((5 * trial + 3 * place + 2 * at) % MANY <= at),
            "text": f"{at}, {place}, {trial}: \\boxed{{2}}",
            "answer": "1",
        }
        for at in range(MANY)
        for place in range(MANY)
        for trial in range(3)
    ]


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
    files = _imported("".join(f"{json.dumps(row)}\n" for row in (made_up_rows() if rows is None else rows)))
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        for name, content in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
        yield directory


@cache
def _imported(rows: str) -> dict[str, bytes]:
    """The files of such a run; many a check asks for the same one."""
    with TemporaryDirectory() as folder:
        path, directory = Path(folder) / "trials.jsonl", Path(folder) / "run"
        path.write_text(rows)
        import_logs(ImportRequest([str(path)], directory, finished=True))
        files = (file for file in directory.rglob("*") if file.is_file())
        return {str(file.relative_to(directory)): file.read_bytes() for file in files}


@contextmanager
def run_with_gaps() -> Iterator[Path]:
    """The directory of a run as many end: a model set aside, numbers of trials that are not there, a question that a
    model was never asked, answers that nobody could grade, a time-out, and an answer with nothing in it."""
    rows = []
    for row in made_up_rows():
        model, question, trial = row["model"], row["question"], row["trial"]
        if (model, question) == ("bob", "q5") or (question == "q2" and model == "dan" and trial):
            continue
        if (model, question) == ("ada", "q1"):
            row = {key: value for key, value in row.items() if key != "category"} | {"grader_error": "it took too long"}
        if (model, question, trial) == ("dan", "q3", 1):
            row |= {"text": "", "flags": "timed_out", "category": 0}
        if (model, question, trial) == ("dan", "q3", 2):
            row |= {"text": "", "flags": "empty", "category": 0}
        rows.append(row)
    with stored_run(rows) as directory:
        with closing(RunStore.attach(directory)) as store:
            model, numbers = store.reader.models()["cyd"], store.reader.questions()
            dropped = [Dropped((model, numbers[question], trial)) for question in QUESTIONS for trial in (0, 3)]
            body = {"reason": "its server went away", "cause": "server"}
            store.append(*dropped, Note(SET_ASIDE, model, body))
        _leave_out(directory, "bob")
        yield directory


def _leave_out(directory: Path, name: str) -> None:
    """Store a configuration without this model, as a resume does."""
    with closing(RunReader.open(directory)) as reader:
        header = reader.header()
    stored = header.configuration
    configuration = {**stored, "models": [model for model in stored["models"] if model["name"] != name]}
    with closing(RunStore.attach(directory)) as store:
        store.change_settings(replace(header, configuration=configuration), [*differences(stored, configuration)])
