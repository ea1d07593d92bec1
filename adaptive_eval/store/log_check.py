"""Finds commits in the write-ahead log of a run that SQLite would silently drop.

If a byte of the log was changed, SQLite reads only what comes before it, as after a power failure that cut off the last
write: all later commits are lost without notice. But each commit of a run is on disk before the next one begins
(`synchronous = FULL`). So commits after the place where SQLite stops were written, and the log is damaged.

Only the log is opened: closing the database or its index would drop SQLite's locks on them for the whole process, and
another process could then crash this one.

The format is that of https://sqlite.org/fileformat2.html#the_write_ahead_log and https://sqlite.org/walformat.html.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.files import require_plain

HEADER = struct.Struct(">8I")
"""Magic, version, page size, number of the log, two salts, and two checksums of these."""
MAGICS = {0x377F0682: "<u4", 0x377F0683: ">u4"}
"""Byte order of the words in checksums, by magic number."""
PAGE = 4096
"""Page size of a run, used if the header of the log is damaged."""
FRAME_HEAD = 24
"""Bytes of a frame's header: page number, size of the database after a commit (else 0), two salts, two checksums."""
SUMMED = 8
"""Bytes of the frame's header that enter the checksums, followed by the page."""
FRAMES_AT_ONCE = 512


class _Frame(NamedTuple):
    commits: bool
    salts: tuple[int, int]
    follows: bool
    """Whether its checksums match its content, continued from those of the previous frame."""


def lost_commits(database: Path) -> int:
    """The number of commits in the log of this database that SQLite would drop.

    One may be a write that was cut off by a kill or a power failure and never confirmed; more are damage. The log is
    read twice in case it is being written.
    """
    log = database.with_name(f"{database.name}-wal")
    try:
        require_plain(log)
        lost = _count_lost(log)
        return min(lost, _count_lost(log)) if lost else 0
    except OSError:  # opening the database reports it
        return 0


def _count_lost(log: Path) -> int:
    with log.open("rb") as file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return 0
        magic, _, page, number, *salts, first, second = HEADER.unpack(head)
        words = MAGICS.get(magic, "<u4")
        summed = _sums(np.frombuffer(head[: HEADER.size - 8], words)[None], np.zeros((1, 2), np.uint32))[0]
        if magic not in MAGICS or tuple(summed) != (first, second):  # SQLite ignores the whole log
            return sum(frame.commits and frame.follows for frame in _frames(file, PAGE, words, (first, second)))
        taking, commits, broken = True, 0, False
        for frame in _frames(file, page, words, (first, second)):
            of_this_log = frame.salts == tuple(salts)
            if taking and frame.follows and of_this_log:
                continue
            # other salts mean a frame of an earlier log; but before the first log there was none
            ours = of_this_log or number == 0
            commits += frame.commits and frame.follows and ours and not taking
            broken |= (frame.commits and ours and not frame.follows) or (taking and frame.follows)
            taking = False
        return commits + broken


def _frames(file: BinaryIO, page: int, words: str, before: tuple[int, int]) -> Iterator[_Frame]:
    """The next frames of the log, up to the first incomplete one."""
    size = FRAME_HEAD + page
    ends = np.array([before], np.uint32)
    while found := len(read := file.read(FRAMES_AT_ONCE * size)) // size:
        frames = np.frombuffer(read, np.uint8, found * size).reshape(found, size)
        heads = np.ascontiguousarray(frames[:, :FRAME_HEAD]).view(">u4").astype(np.uint32)
        starts = np.concatenate([ends, heads[:-1, 4:]])
        content = np.concatenate([frames[:, :SUMMED], frames[:, FRAME_HEAD:]], axis=1).view(words)
        follow = (_sums(content, starts) == heads[:, 4:]).all(axis=1)
        for (_, after, one, other, *_), follows in zip(heads.tolist(), follow.tolist(), strict=True):
            yield _Frame(after > 0, (one, other), follows)
        ends = heads[-1:, 4:]


def _sums(words: NDArray[np.uint32], starts: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The two checksums of each row, from its start values: for each pair of words, s += one + t; t += other + s."""
    of_start, of_words = _weights(words.shape[1] // 2)
    return words.astype(np.uint32) @ of_words + starts @ of_start


@lru_cache
def _weights(pairs: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Coefficients of each start value, and of each word, in the two checksums, modulo 2^32."""
    of_s, of_t = np.array([[1, 0], [0, 1]], np.uint32)  # after the last pair of words, then backwards pair by pair
    of_words = []
    for _ in range(pairs):
        of_words += [
            of_t,
            of_s + of_t,
        ]  # the second word of a pair is added to t only, the first to s and through it to t
        of_s, of_t = of_s + of_t, of_s + of_t + of_t
    return np.stack([of_s, of_t]), np.stack(of_words[::-1])
