"""Rows of results.json on questions are kept as counts, and written as they would be as objects."""

import json
import tracemalloc
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from played import Played, prepared
from result_rows import QuestionRow, rows_in_file, rows_of
from scipy.stats import beta

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.report.question_rows import PART_SIZE, CountedRows, as_json, distinct_counts, question_posteriors
from adaptive_eval.report.results import Results
from adaptive_eval.report.results_file import read_results, write_results

QUESTIONS = 2 * PART_SIZE + 3
WEIGHTS = np.array([0.0, 0.25, 1.0])
TRICKY = ['},{"id":"q', '],"questions":[{"id":"q', '}],"warnings":[', "\\", "\u2028\U0001f642", ""]
"""What stands between parts of the file, as the name of a question."""


def counts_of(questions: int, models: int = 3, categories: int = 3) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 5, (models, questions, categories))


def names_of(questions: int) -> list[str]:
    return [*TRICKY, *(f"q{at}" for at in range(questions))][:questions]


def counted(questions: int) -> CountedRows:
    counts = counts_of(questions)
    judged = counts.copy()
    judged[..., 1] = 0
    return CountedRows(names_of(questions), counts, judged, WEIGHTS, range(len(counts)))


def as_objects(questions: int) -> list[QuestionRow]:
    """The rows made one by one, each number separately."""
    counts = counts_of(questions)
    rows = []
    for at, name in enumerate(names_of(questions)):
        cell_counts = counts[:, at]
        mean, lo, hi = (column.tolist() for column in question_posteriors(cell_counts, WEIGHTS))
        cells = tuple(map(tuple, cell_counts.tolist()))
        trials = tuple(map(sum, cells))
        rows.append(QuestionRow(name, trials, *map(tuple, (mean, lo, hi)), cells, tuple(cell_counts[:, 1].tolist())))
    return rows


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("played")
    Played(folder / "run", prepared(folder)).finish()
    stored = read_results(folder / "run")
    assert stored is not None
    stopping = {"rule": "own:Rule", "options": {"before": [0], "questions": [{"id": "no row"}]}}
    decisions = Decisions.model_validate({"stopping": stopping}, strict=False).stated()
    return replace(stored, questions=counted(QUESTIONS), decisions=decisions)


@pytest.mark.parametrize("questions", [0, 1, PART_SIZE, PART_SIZE + 1, QUESTIONS])
def test_rows_from_counts_equal_rows_made_as_objects(questions: int, results: Results) -> None:
    rows, objects = counted(questions), as_objects(questions)
    assert orjson.dumps(rows, default=as_json) == orjson.dumps(objects)
    assert rows_of(replace(results, questions=rows)) == tuple(objects)
    assert len(list(rows.parts())) == -(-questions // PART_SIZE), "they are never all made at once"


def test_the_file_is_byte_by_byte_that_of_rows_as_objects(results: Results, tmp_path: Path) -> None:
    path = write_results(tmp_path, results)
    objects: Any = as_objects(QUESTIONS)
    expected = orjson.dumps(replace(results, questions=objects))
    assert path.read_bytes() == expected[:-1] + b',"checksum":%d}\n' % zlib.crc32(expected)


def test_results_are_read_as_written_without_rows_whatever_the_names(results: Results, tmp_path: Path) -> None:
    path = write_results(tmp_path, results)
    stored = read_results(tmp_path)
    assert stored is not None and stored == replace(results, questions=())
    assert rows_in_file(tmp_path) == tuple(as_objects(QUESTIONS))
    for few in (0, 1):
        write_results(tmp_path, replace(results, questions=counted(few)))
        assert read_results(tmp_path) == stored and len(rows_in_file(tmp_path)) == few
    path = write_results(tmp_path, results)
    document = unsealed(path)
    seal(path, orjson.dumps({key: document[key] for key in ["format", *sorted({*document} - {"format"})]}))
    assert read_results(tmp_path) == stored, "another program may have written it"


def unsealed(path: Path) -> dict[str, Any]:
    return {key: value for key, value in json.loads(path.read_bytes()).items() if key != "checksum"}


def seal(path: Path, text: bytes) -> None:
    path.write_bytes(text[:-1] + b',"checksum":%d}\n' % zlib.crc32(text))


def test_many_rows_are_written_in_a_fraction_of_their_size(results: Results, tmp_path: Path) -> None:
    counts = np.random.default_rng(5).integers(0, 9, (100, 1000, 2), dtype=np.int32)
    weights, order = np.array([0.0, 1.0]), range(99, -1, -1)
    rows = CountedRows([f"q{at}" for at in range(1000)], counts, counts, weights, order)
    tracemalloc.start()
    path = write_results(tmp_path, replace(results, questions=rows))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < path.stat().st_size / 2 > 2**20


@pytest.mark.parametrize("largest", [3, 2**40, 2**62])
def test_counts_that_occur_are_found_once_and_in_order(largest: int) -> None:
    counts = np.random.default_rng(1).integers(0, 3, (4, 5, 2)) * (largest // 3)
    distinct, places = distinct_counts(counts)
    expected = np.unique(counts.reshape(-1, 2), axis=0)
    assert np.array_equal(distinct, expected) and np.array_equal(distinct[places], counts)


def test_posteriors_are_exact_beta_quantiles() -> None:
    counts = np.random.default_rng(2).integers(0, 4, (3, 7, 2))
    mean, lo, hi = question_posteriors(counts, np.array([0.0, 1.0]))
    exact = beta(counts[..., 1] + 1, counts[..., 0] + 1)
    ends: Sequence[np.ndarray] = (exact.mean(), exact.ppf(0.025), exact.ppf(0.975))
    for actual, expected in zip((mean, lo, hi), ends, strict=True):
        assert np.allclose(actual, expected, rtol=1e-9)
