"""Reads logs of other tools, which are untrusted: unpacked sizes are bounded, and names in archives are no paths.

An Inspect log is a zip whose members are compressed with Zstandard (method 93), which Python's zipfile does not support
before 3.14; so members are decompressed here.
"""

import json
import os
import re
import stat
import struct
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.imports import load_extra
from adaptive_eval.base.json_objects import RepeatedKey, object_of

MOST_BYTES = 64 * 2**20
"""Largest record, or member of an archive: a sample with its transcript has some 10^5 bytes."""
MOST_FILE = 2**30
"""Largest file that must be loaded as a whole."""
CHUNK_BYTES = 2**24
"""Bytes of such a file to read at once."""
MOST_GROWTH = 1000
"""Largest compression ratio: texts shrink a few times, repetitive ones a hundred times."""
ALLOWANCE = 2**20
MAX_WINDOW_BYTES = 2**27
LOCAL_HEADER = struct.Struct("<4s22xHH")
STORED, DEFLATED, ZSTANDARD = 0, 8, 93
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class LogError(ConfigError):
    """A file or one of its records cannot be imported; the message names both.

    Since it may quote from them, control characters are replaced.
    """

    def __init__(self, message: str) -> None:
        super().__init__(CONTROLS.sub("\ufffd", message))


@dataclass
class LogFile:
    """A file to import, and the progress of reading it."""

    path: Path
    model: str | None = None
    """Name of its model; None to take that of the log."""
    scorer: str | None = None
    """Name of the score that counts; None if there is only one."""
    scorers: Mapping[str, str] = field(default_factory=dict)
    """Names of the scores that count by benchmark (empty for the only one), where the configuration names them."""
    graded_anew: bool = False
    """Whether its texts are graded again, whatever scores it has."""
    scores: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The scores found in it from which `scorer` leaves to choose, by task, if the first of them counts."""
    share: float = 0.0
    """The share of the file that was read, from 0 to 1."""
    own_names: set[str] = field(default_factory=set)
    """The names that it, or its folder, has for its model; kept where a name is given."""

    def name_model(self, own: str, record: str | None = None) -> str:
        """The name of a model that the file calls `own`: the given one. Raises `LogError` for a second model."""
        if self.model is None:
            return own
        self.own_names |= {own} - {""}
        if len(self.own_names) > 1:
            first, second = (f"{name[:80]!r}" for name in sorted(self.own_names))
            raise self.refuse(
                f"has the models {first} and {second}, and NAME=FILE names the model of a file that has one: leave "
                f"{self.model}= out, and the models keep their names",
                record,
            )
        return self.model

    def refuse(self, problem: str, record: str | None = None) -> LogError:
        """The error for this file, or a record in it."""
        return LogError(f"{self.path}: {problem}" if record is None else f"{self.path}: {record}: {problem}")


def parse_log_json(
    file: LogFile, data: bytes | bytearray | str, record: str | None = None, *, is_row: bool = False
) -> Any:
    """Parse JSON, allowing NaN, which some harnesses write; raises `LogError`, for a row of a table also if a key
    stands twice in it."""
    try:
        if not is_row:
            return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data, object_pairs_hook=object_of if is_row else None)
    except RepeatedKey as error:
        raise file.refuse(f"has an object with the key {error} twice; remove one of them", record) from error
    except RecursionError:
        raise file.refuse("is nested too deeply to be a log", record) from None
    except ValueError as error:
        raise file.refuse(f"is not JSON, or is cut off: {error}", record) from error


@contextmanager
def open_log(file: LogFile) -> Iterator[IO[bytes]]:
    """Open a regular file for reading bytes; raises `LogError`, also for pipes and devices, which may never end."""
    try:
        # opening a pipe would wait for a writer
        with open(file.path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as handle:
            if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
                raise file.refuse("is a pipe or a device, and no file; write what it gives to a file")
            yield handle
    except OSError as error:
        raise file.refuse(f"cannot be read: {error.strerror or error}") from error


def read_file(file: LogFile) -> bytearray:
    """Read all bytes of a file that is one JSON text, up to `MOST_FILE`."""
    with open_log(file) as handle:
        size = handle.seek(0, 2)
        if size > MOST_FILE:
            raise file.refuse(f"has {size:,} bytes; at most {MOST_FILE:,} can be read of a file that is one JSON text")
        handle.seek(0)
        data = bytearray()
        while part := handle.read(CHUNK_BYTES):
            if b"\0" in part:
                raise file.refuse("is not JSON: it has zero bytes, as a file that was not written to its end")
            data += part
        return data


def decompress_zstandard(file: LogFile, packed: bytes, max_bytes: int, record: str) -> bytes:
    """Decompress at most `max_bytes` bytes of Zstandard data."""
    zstandard = load_extra("zstandard", "import", "logs that are packed by Zstandard (Inspect's .eval)")
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(packed, closefd=False) as stream:
            data: bytes = stream.read(max_bytes)
            return data
    except zstandard.ZstdError as error:
        raise file.refuse(f"is damaged, or cut off: {error}", record) from error


class Archive:
    """The members of a zip, which are read into memory and never extracted to files."""

    def __init__(self, file: LogFile, handle: IO[bytes]) -> None:
        self._file, self._handle = file, handle
        try:
            with zipfile.ZipFile(handle) as archive:
                # of two members with the same name the last counts, as for every zip reader
                self._members = {info.filename: info for info in archive.infolist()}
                packed = sum(info.compress_size for info in archive.infolist())
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            hint = "`inspect log recover` may bring back a log whose end was never written"
            raise file.refuse(f"is a damaged zip file, or cut off ({error}); {hint}") from error
        if packed > handle.seek(0, 2):
            raise file.refuse("is a zip whose members overlap, which no harness writes")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the members, in order."""
        return tuple(self._members)

    @property
    def claimed(self) -> int:
        """The total unpacked size that the archive declares, in bytes."""
        return sum(info.file_size for info in self._members.values())

    def json(self, name: str) -> Any:
        """Parse a member as JSON."""
        return parse_log_json(self._file, self.read(name), name)

    def read(self, name: str) -> bytes:
        """Read a member, and check its length and checksum."""
        info = self._members[name]
        if info.file_size > min(MOST_BYTES, ALLOWANCE + MOST_GROWTH * info.compress_size):
            raise self._file.refuse(
                f"claims {info.file_size:,} bytes of {info.compress_size:,} packed ones, which is not a log", name
            )
        if info.flag_bits & 1:
            raise self._file.refuse("is encrypted; write the log without a password", name)
        data = self._decompress(info, self._packed(info))
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise self._file.refuse("is damaged: its bytes are not those that were written", name)
        return data

    def _packed(self, info: zipfile.ZipInfo) -> bytes:
        self._handle.seek(info.header_offset)
        header = self._handle.read(LOCAL_HEADER.size)
        if len(header) < LOCAL_HEADER.size:
            raise self._file.refuse("lies beyond the end of the file, which is cut off", info.filename)
        _, name, extra = LOCAL_HEADER.unpack(header)
        self._handle.seek(name + extra, 1)
        return self._handle.read(info.compress_size)

    def _decompress(self, info: zipfile.ZipInfo, packed: bytes) -> bytes:
        """Decompress up to one byte more than declared, so that excess is noticed."""
        max_bytes = info.file_size + 1
        if info.compress_type == ZSTANDARD:
            return decompress_zstandard(self._file, packed, max_bytes, info.filename)
        if info.compress_type == DEFLATED:
            try:
                return zlib.decompressobj(-15).decompress(packed, max_bytes)
            except zlib.error as error:
                raise self._file.refuse(f"is damaged: {error}", info.filename) from error
        if info.compress_type == STORED:
            return packed
        rule = "must be stored, deflated or packed by Zstandard"
        raise self._file.refuse(f"{rule}, but its zip method is {info.compress_type}", info.filename)
