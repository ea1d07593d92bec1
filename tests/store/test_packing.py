"""Texts and values survive their packed form."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.base.errors import StoreError
from adaptive_eval.machine.facts import MAX_SIZE
from adaptive_eval.store.packing import pack_json, pack_text, unpack_json, unpack_text

ANY_TEXT = st.text(st.characters(codec=None), max_size=300)


@given(ANY_TEXT, st.integers(0, 60))
def test_a_text_comes_back(text: str, times: int) -> None:
    assert unpack_text(pack_text(text * times)) == text * times


@given(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False) | ANY_TEXT, st.lists, max_leaves=8))
def test_plain_values_come_back(value: object) -> None:
    assert unpack_json(pack_json({"found": value}), "it") == {"found": value}


def test_short_texts_stay_readable_and_long_ones_shrink() -> None:
    assert pack_text(None) is None
    assert pack_text("x" * MAX_SIZE) == "x" * MAX_SIZE
    packed = pack_text("the answer is 42. " * 1000)
    assert isinstance(packed, bytes) and len(packed) < 1000


def test_a_text_that_unpacks_to_more_than_was_ever_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_eval.store.packing.MAX_UNPACKED", 1_000_000)
    with pytest.raises(StoreError, match="unpacks to more than 1000000 bytes"):
        unpack_text(zlib.compress(bytes(2_000_000)))


@pytest.mark.parametrize("damaged", [b"", b"\0", zlib.compress(b"text" * 1000)[:-9]])
def test_a_damaged_text_is_named_as_such(damaged: bytes) -> None:
    with pytest.raises(StoreError, match="restore a copy"):
        unpack_text(damaged)
