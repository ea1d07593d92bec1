"""Exports of a run with names that are hard to write and with gaps: its trials come back, all and no others."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time

import numpy as np
import pytest
from command_line import typed
from logs import lines, outcomes, taken
from small_run import make_run, ragged
from stored_runs import stored_header

from adaptive_eval.config.fingerprint import differences
from adaptive_eval.exchange.detect import log_files, read_records
from adaptive_eval.exchange.export import EXPORTS, export
from adaptive_eval.machine.records import SET_ASIDE, Dropped, Note
from adaptive_eval.store.write import RunStore

MODELS = ('org/ada "7b", v2', 'ORG/ada "7b", v2', f"org/{'c' * 60}-step-1000", f"org/{'c' * 60}-step-2000")
"""Some differ in their case or their ends alone."""
QUESTIONS = ('q, "1"\nand more', "=1+1", "\u0432\u043e\u043f\u0440\u043e\u0441")
ASIDE, GONE = MODELS[:2]
Trials = Iterator[tuple[tuple[str, str, int], int | None]]
Readers = dict[str, Callable[[Path], Trials]]


def made_up_rows() -> Iterator[dict[str, object]]:
    """Some trials of a question are missing, one question was never asked of a model, and one answer has no grade."""
    for at, model in enumerate(MODELS):
        for place, question in enumerate(QUESTIONS):
            for trial in range(5):
                row = {"model": model, "question": question, "trial": trial, "text": f"{at}, {place}, {trial}"}
                if (at, place) == (2, 1) or (place == 0 and trial in (0, 2)):
                    continue
                ungraded = (at, place, trial) == (3, 2, 4)
                yield row | ({"grader_error": "timeout"} if ungraded else {"category": (at + place * trial) % 2})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of it was set aside, and another has left its configuration."""
    folder = tmp_path_factory.mktemp("exported")
    directory = folder / "run"
    taken(lines(folder / "trials.jsonl", list(made_up_rows())), "--to", directory)
    header = stored_header(directory)
    stored = header.configuration
    configuration = {**stored, "models": [model for model in stored["models"] if model["name"] != GONE]}
    with closing(RunStore.attach(directory)) as store:
        model, question = store.reader.models()[ASIDE], store.reader.questions()[QUESTIONS[1]]
        store.append(Dropped((model, question, 3)), Note(SET_ASIDE, model, {"reason": "it went", "cause": "server"}))
        store.change_settings(replace(header, configuration=configuration), [*differences(stored, configuration)])
    return directory


def of_npz(path: Path) -> Trials:
    arrays = np.load(path, allow_pickle=False)
    for (model, question, trial), category in np.ndenumerate(arrays["R"]):
        if category >= 0:
            yield (str(arrays["models"][model]), str(arrays["questions"][question]), trial), int(category)


def of_importers(path: Path) -> Trials:
    for record in (stored for file in log_files([str(path)]) for stored in read_records(file)):
        assert record.trial is not None
        value = record.category if record.value is None else int(record.value)
        yield (record.model, record.question, record.trial), value


READERS: Readers = dict.fromkeys(EXPORTS, of_importers) | {"npz": of_npz}


@pytest.mark.parametrize("form", EXPORTS)
def test_the_trials_of_a_run_are_in_its_export_each_once(run: Path, tmp_path: Path, form: str) -> None:
    """An array has no place for an answer without a grade."""
    stored = outcomes(run)
    assert len(stored) > 40 and GONE in {model for model, _, _ in stored}
    expected = {trial: category for trial, category in stored.items() if form != "npz" or category is not None}
    progress = list[int]()
    path = export(run, form, tmp_path / EXPORTS[form].place, on_progress=progress.append).path
    trials = list(READERS[form](path))
    assert dict(trials) == expected and len(trials) == len(expected)
    assert progress == sorted(progress) and progress[-1] == len(stored)


def test_an_export_says_that_it_holds_a_model_that_has_left_the_run(run: Path, tmp_path: Path) -> None:
    done = typed("export", run, "--format", "csv", "--output", tmp_path / "trials.csv")
    assert f"note: it also holds {GONE}, no longer in the run; `import --leave-out NAME`" in done.stdout, done.output


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_request_that_was_never_answered_comes_back_as_such(tmp_path: Path, form: str) -> None:
    """Also from a format without texts."""
    failed = [
        replace(trial, answer=replace(trial.answer, text="", signals=frozenset({"unanswered"})))
        if trial.category is None
        else trial
        for trial in ragged()
    ]
    directory = make_run(tmp_path, failed)
    done = taken(export(directory, form).path, "--to", tmp_path / "imported", "--finished")
    assert "missing" not in done.output, done.output
    assert outcomes(tmp_path / "imported") == outcomes(directory)
    assert "bob: of 6 answers 1 never came, since every attempt at them failed" in done.output


@pytest.mark.parametrize("form", ["csv", "jsonl", "npz", "parquet"])
def test_exports_of_other_days_are_alike(run: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = export(run, form, tmp_path / "first").path
    monkeypatch.setattr("time.time", lambda: time() + 86_400.0)
    assert export(run, form, tmp_path / "again").path.read_bytes() == first.read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {"first", "again"}


@pytest.mark.parametrize("form", EXPORTS)
def test_grades_with_a_negative_weight_come_back(tmp_path: Path, form: str) -> None:
    rows = [{"model": "ada", "question": "q", "trial": trial, "score": score} for trial, score in enumerate((-0.5, 2))]
    weights = "--weights=-0.5,2"
    taken(lines(tmp_path / "rows.jsonl", rows), "--to", tmp_path / "run", weights)
    taken(export(tmp_path / "run", form, tmp_path / EXPORTS[form].place).path, "--to", tmp_path / "again", weights)
    assert list(outcomes(tmp_path / "again").values()) == [0, 1]
