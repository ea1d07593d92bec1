"""Conversion of texts and plain values to columns, and back.

A text of up to 1,024 bytes is stored as it is; a longer one is compressed by zlib, at level 2 with a window of 8 KiB.
Of English prose this takes, for 1,000, 4,000 and 30,000 characters, 0.05, 0.09 and 0.66 ms and 57, 51 and 46% of the
bytes. The default of zlib takes 0.15, 0.11 and 1.36 ms for 56, 49 and 42%: setting up its window of 32 KiB costs more
than storing the rest of a short trial.
"""

import json
import zlib
from collections.abc import Sequence
from typing import Any

from adaptive_eval.base.errors import DamagedValue
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.machine.facts import MAX_SIZE

Parts = Sequence[bytes | memoryview]
"""Data in parts, since joining them takes their memory once more."""

MAX_UNPACKED = 256 * 1024 * 1024
"""No response, so no text, is longer (`endpoints.wire.MAX_BODY`): what unpacks to more was not written here."""
LOGPROB_STEPS = 10_000
"""Log-probabilities are stored to four decimals."""
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def pack_text(text: str | None) -> str | bytes | None:
    """Convert a text to SQLite TEXT if it is short, or to a zlib BLOB if it is long or not valid Unicode."""
    if text is None:
        return None
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= MAX_SIZE and not has_surrogates(text):
        return text
    return compress(data)


def unpack_text(stored: object) -> str | None:
    """Restore the text that was given to `pack_text`."""
    if isinstance(stored, bytes):
        return decompress(stored).decode("utf-8", "surrogatepass")
    if stored is None or isinstance(stored, str):
        return stored
    raise DamagedValue(f"a stored text is of type {type(stored).__name__}")


def pack_json(value: object) -> bytes:
    """Convert plain values to compressed JSON."""
    return compress(dump_json(value).encode())


def unpack_json(stored: object, what: str) -> dict[str, Any]:
    """Restore the object that was given to `pack_json`; raises `DamagedValue` if it is damaged."""
    return parse_object(decompress(stored) if isinstance(stored, bytes) else None, what)


def pack_logprobs(logprobs: AnswerLogprobs | None) -> bytes | None:
    """Compress tokens with their log-probabilities."""
    if logprobs is None:
        return None
    steps = [None if value is None else round(value * LOGPROB_STEPS) for value in logprobs.values]
    return pack_json([logprobs.tokens, steps])


def unpack_logprobs(stored: object) -> AnswerLogprobs | None:
    """Restore log-probabilities, to four decimals; raises `DamagedValue` if they are damaged."""
    if stored is None:
        return None
    try:
        tokens, steps = json.loads(decompress(stored if isinstance(stored, bytes) else b""))
        if len(tokens) == len(steps) and all(isinstance(token, str) for token in tokens):
            values = (None if step is None else step / LOGPROB_STEPS for step in steps)
            return AnswerLogprobs(tuple(tokens), tuple(values))
    except (ValueError, TypeError, RecursionError, OverflowError):
        pass
    raise DamagedValue("stored log-probabilities are no list of tokens and numbers")


def parse_object(stored: object, what: str) -> dict[str, Any]:
    """Parse a stored JSON object; raises `DamagedValue` if it is anything else."""
    try:
        parsed = json.loads(stored) if isinstance(stored, str | bytes) else None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise DamagedValue(f"{what} is not a JSON object")
    return parsed


def dump_json(value: object) -> str:
    """Convert plain values to ASCII JSON with sorted keys: equal values give equal texts, whatever a model wrote."""
    return _JSON.encode(value)


def valid_text(text: str | None) -> str | None:
    """A short text for a TEXT column, with question marks for invalid Unicode."""
    return text.encode("utf-8", "replace").decode() if text is not None and has_surrogates(text) else text


def real(value: float | None) -> float | None:
    """A number as SQLite returns it from a column of type REAL: without integers, -0.0 and nan."""
    return None if value is None or value != value else value + 0.0


def compress(*parts: bytes | memoryview) -> bytes:
    """Compress data with zlib."""
    compressor = zlib.compressobj(level=2, wbits=13, memLevel=7)
    return b"".join([*map(compressor.compress, parts), compressor.flush()])


def decompress(stored: bytes) -> bytes:
    """Decompress stored data; raises `DamagedValue` if they are damaged or unpack to more than was ever written."""
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(stored, MAX_UNPACKED)
    except zlib.error as error:
        raise DamagedValue(f"a stored text cannot be unpacked ({error})") from error
    if not decompressor.eof:
        raise DamagedValue(f"a stored text is cut off, or unpacks to more than {MAX_UNPACKED} bytes")
    return data


def has_surrogates(text: str) -> bool:
    """Whether a text has lone surrogates, so that it is not valid Unicode."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
