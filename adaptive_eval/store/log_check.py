"""Whether SQLite takes all of the write-ahead log of a run.

Where a byte of the log was changed, SQLite takes what comes before it, as after a power failure that has cut the last
write: whatever was committed later is gone without a word. But each commit of a run is on disk before the next one
begins (`synchronous = FULL`). So commits behind the place where SQLite stops were there, and are not what was written.

The format is that of https://sqlite.org/fileformat2.html#the_write_ahead_log and https://sqlite.org/walformat.html.
"""

import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote

HEADER = struct.Struct(">8I")
"""Magic, version, page size, number of the log, two salts, two sums of what stands before."""
LITTLE, BIG = 0x377F0682, 0x377F0683
"""Magics: whether words are summed as little endian numbers."""
FRAME = struct.Struct(">4I8x")
"""Page number, size of the database after a commit (else 0), the two salts of the log, two sums."""
INDEX_BYTES = 48
"""Of the head of the index beside the log, which is there twice."""


class Stretch(NamedTuple):
    """What SQLite takes of a log, by its index."""

    frames: int
    salts: tuple[int, int]


def lost_commits(database: Path) -> int:
    """Commits in the log of this database that SQLite does not take.

    One may be a write that a kill or a power failure has cut, and that nobody was told of; more are damage.
    """
    log = database.with_name(f"{database.name}-wal")
    try:
        if log.stat().st_size <= HEADER.size:
            return 0
        with log.open("rb") as file:
            head = file.read(HEADER.size)
            commits = _commits(file, log.stat().st_size, _page_size(database))
        taken = _taken(database)
    except (OSError, sqlite3.Error, struct.error):  # whoever opens it is told why
        return 0
    if taken is None or not commits:
        return 0
    _, _, _, number, *salts, _, _ = HEADER.unpack(head)
    if not _is_whole(head):
        return len(commits)  # SQLite takes nothing
    if taken.salts != tuple(salts):
        return 0  # it was begun anew this moment
    # the first log of a database has no frames of an earlier one
    return sum(frame >= taken.frames and (its in (taken.salts,) or number == 0) for frame, its in commits)


def _page_size(database: Path) -> int:
    with database.open("rb") as file:
        (size,) = struct.unpack(">16xH", file.read(18))
    return 65536 if size == 1 else int(size)


def _commits(file: BinaryIO, size: int, page: int) -> list[tuple[int, tuple[int, int]]]:
    """Frames that end a commit, by their numbers, with the salts of the log that they were written in."""
    found = []
    for number in range((size - HEADER.size) // (FRAME.size + page)):
        file.seek(HEADER.size + number * (FRAME.size + page))
        _, after, *salts = FRAME.unpack(file.read(FRAME.size))
        if after:
            found.append((number, (salts[0], salts[1])))
    return found


def _taken(database: Path) -> Stretch | None:
    """What SQLite takes; None where its index is being written or is not there."""
    uri = f"file:{quote(str(database.absolute()))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        index = database.with_name(f"{database.name}-shm").read_bytes()[: 2 * INDEX_BYTES]
    if len(index) < 2 * INDEX_BYTES or index[:INDEX_BYTES] != index[INDEX_BYTES:]:
        return None
    (frames,), salts = struct.unpack_from("=I", index, 16), struct.unpack_from(">2I", index, 32)
    return Stretch(frames, (salts[0], salts[1]))


def _is_whole(head: bytes) -> bool:
    """The head of the log is what was written, by its sums."""
    magic, *_, first, second = HEADER.unpack(head)
    if magic not in (LITTLE, BIG):
        return False
    words = struct.unpack("<6I" if magic == LITTLE else ">6I", head[:24])
    low = high = 0
    for one, other in zip(words[::2], words[1::2], strict=True):
        low = (low + one + high) % 2**32
        high = (high + other + low) % 2**32
    return (low, high) == (first, second)
