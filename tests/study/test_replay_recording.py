"""Files of recorded outcomes: what is read, and the error for each kind of damage."""

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.exchange.recording import read_recording
from adaptive_eval.study.replay import source_of_recording

R = np.array([[[0, 1, -1], [1, 1, 1]], [[2, -1, -1], [0, 0, 1]]], dtype=np.int8)
CORRECT, COUNT = np.array([[3, 0, 7], [2, 5, 1]]), np.array([[5, 1, 7], [9, 5, 1]])


def saved(folder: Path, **values: Any) -> Path:
    path = folder / "record.npz"
    np.savez(path, **values)
    return path


def test_outcomes_are_read_with_their_gaps(tmp_path: Path) -> None:
    recording = read_recording(saved(tmp_path, R=R, models=["a", "b"], questions=np.array([7, 8])))
    assert recording.models == ("a", "b")
    assert recording.questions == ("7", "8")
    assert recording.outcomes is not None and np.array_equal(recording.outcomes, R)
    assert recording.counts.tolist() == [[[1, 1, 0], [0, 3, 0]], [[0, 0, 1], [2, 1, 0]]]


def test_counts_and_booleans_are_read(tmp_path: Path) -> None:
    recording = read_recording(saved(tmp_path, correct=CORRECT.astype(np.int16), count=COUNT.astype(np.uint8)))
    assert recording.models == ("model-01", "model-02")
    assert recording.questions == ("q1", "q2", "q3")
    assert recording.outcomes is None
    assert recording.counts.tolist() == np.stack([COUNT - CORRECT, CORRECT], axis=-1).tolist()
    recording = read_recording(saved(tmp_path, R=R > 0, models=np.array([b"a", "é".encode()])))
    assert recording.counts.tolist() == [[[2, 1], [0, 3]], [[2, 1], [2, 1]]]
    assert recording.models == ("a", "é")


def test_shares_of_a_recording_are_its_true_scores_in_descending_order(tmp_path: Path) -> None:
    source = source_of_recording(read_recording(saved(tmp_path, R=R)), "record", np.array([0.0, 1.0, 0.5]))
    assert source.truth == pytest.approx([(0.5 + 1.0) / 2, (0.5 + 1 / 3) / 2])
    message = r"record has trials of category 2, but the rubric has the categories 0 to 1"
    with pytest.raises(ConfigError, match=message):
        source_of_recording(read_recording(saved(tmp_path, R=R)), "record", np.array([0.0, 1.0]))
    better = np.array([[[1, 1]], [[0, 1]], [[1, 1]]])
    top = source_of_recording(read_recording(saved(tmp_path, R=1 - better)), "record", np.array([0.0, 1.0])).best(2)
    assert top.models == ("model-02", "model-01")
    assert top.recorded is not None and top.recorded.tolist() == [[2], [2]]
    assert top.outcomes is not None and top.outcomes[0, 0].tolist() == [1, 0]


WRONG = {
    "nothing it knows": (
        {"scores": R},
        r"must have R, or correct and count, but has scores; rename the array of outcomes to R",
    ),
    "no array": ({}, r"must have R, or correct and count, but has no array"),
    "both": ({"R": R, "correct": CORRECT, "count": COUNT}, r"has both R and correct"),
    "one of two": ({"correct": CORRECT}, r"has no array count, but correct"),
    "two axes": ({"R": R[0]}, r"array R must have shape \(L, M, N\), but got \(2, 3\)"),
    "an empty axis": ({"R": R[:, :, :0]}, r"array R must have shape \(L, M, N\), but got \(2, 2, 0\)"),
    "floats": ({"R": R.astype(float)}, r"array R must contain integers, but got float64"),
    "texts": ({"correct": CORRECT.astype(str), "count": COUNT}, r"array correct must contain integers, but got <U"),
    "too low": ({"R": R - 1}, r"array R must lie between -1 and 253, but has -2"),
    "too high": ({"R": R.astype(np.uint64) + 2**63}, r"array R must lie between -1 and 253, but has 92233720"),
    "an empty cell": ({"R": np.where(R == 2, -1, R)}, r"none of question 0 by model 1 \(counted from 0\); remove"),
    "empty cells": ({"correct": 0 * COUNT, "count": COUNT * (COUNT > 1)}, r"none of question 1 by model 0 .* 1 more"),
    "unequal shapes": ({"correct": CORRECT[:1], "count": COUNT}, r"one shape, but got \(1, 3\) and \(2, 3\)"),
    "more right than tried": ({"correct": COUNT + 1, "count": COUNT}, r"at \(0, 0\) got 6 of 5"),
    "less than none": ({"correct": -CORRECT, "count": COUNT}, r"0 <= correct <= count, but at \(0, 0\) got -3 of 5"),
    "too few names": ({"R": R, "models": ["a"]}, r"array models must have shape \(2,\) .* got <U1 of shape \(1,\)"),
    "a name twice": ({"R": R, "questions": ["q", "q"]}, r"array questions must contain distinct names, .* 'q'"),
    "an empty name": ({"R": R, "models": ["a", ""]}, r"array models must contain distinct names, none of them empty"),
    "objects": (
        {"R": R, "models": np.array(["a", None])},
        r"array models cannot be read: .*np.array\(names, dtype=str\)",
    ),
}


@pytest.mark.parametrize(("values", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_array_is_named(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = saved(tmp_path, **values)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: .*{message}"):
        read_recording(path)


class Bomb:
    """An object whose unpickling would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (Path("exploded"), "")


def test_no_pickle_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    as_file = tmp_path / "bomb.npz"
    as_file.write_bytes(pickle.dumps(Bomb()))
    as_array = saved(tmp_path, R=R, models=np.array([Bomb(), Bomb()]))
    for path in (as_file, as_array):
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            read_recording(path)
    assert not Path("exploded").exists()


def test_unreadable_recordings_get_distinct_errors(tmp_path: Path) -> None:
    single = tmp_path / "one.npy"
    np.save(single, R)
    text, empty, zipped = tmp_path / "t.npz", tmp_path / "e.npz", tmp_path / "z.npz"
    text.write_text("model,score\na,0.5\n")
    empty.write_bytes(b"")
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("R.npy", b"not an array at all")
    for path, message in (
        (single, r"contains one array without a name; write it with np.savez\(file, R=array\)"),
        (text, "is not an .npz file, or is damaged; write it with np.savez$"),
        (empty, "is not an .npz file, or is damaged"),
        (zipped, "array R "),
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / "absent.npz", "cannot be read: No such file"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_recording(path)


@given(data=st.data())
@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_damage_never_gives_anything_but_a_named_error(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    compressed = data.draw(st.booleans())
    (np.savez_compressed if compressed else np.savez)(path, R=R, models=["a", "b"])
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        recording = read_recording(path)
    except ConfigError as error:
        assert str(path) in str(error)
    else:
        assert recording.counts.shape[0] == len(recording.models)
