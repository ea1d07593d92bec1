"""Atomic writes of files, safe even in a power failure, and locks between processes.

A file is written to a temporary name in the same folder, and renamed at the end. A lock is the operating system's lock
on a file, which is released however its holders end.
"""

import errno
import fcntl
import json
import os
import re
import socket
import stat
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, Self

from adaptive_eval.base.errors import ConfigError, StoreError, StoreFull

_held: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


MAX_HOLDER_BYTES = 10_000
"""Maximum bytes to read from a lock file."""


class FileLock:
    """A lock on a file, held until `close`; the file describes the holder."""

    def __init__(self, descriptor: int, holder: Mapping[str, object], before: Mapping[str, object]) -> None:
        self.descriptor = descriptor
        """The open file; a process that inherits it holds the lock, too. -1 after `close`."""
        self.before = before
        """The content that the last holder stored."""
        self.holder = dict(holder)
        """The stored content, for `read_holder`."""
        _held.add(self)

    @classmethod
    def take(cls, path: Path, *, keep: Sequence[str] = (), **details: str) -> Self:
        """Take the lock; raises `OSError`, `BlockingIOError` if it is held.

        `details` are stored for `read_holder`. Entries of the last holder are preserved for the names in `keep`.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            since = datetime.now(UTC).isoformat("T", "seconds")
            before = _parse_holder(os.pread(descriptor, MAX_HOLDER_BYTES, 0))
            inherited = {name: before[name] for name in keep if name in before}
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since, **details, **inherited}
            lock = cls(descriptor, holder, before)
            lock.note()
        except OSError:
            os.close(descriptor)
            raise
        return lock

    def note(self, **details: object) -> None:
        """Store more details of the holder."""
        self.holder |= details
        content = json.dumps(self.holder).encode()
        os.pwrite(self.descriptor, content, 0)
        os.ftruncate(self.descriptor, len(content))

    def close(self) -> None:
        """Release the lock; a second call does nothing. The file stays: removing it would race with the next holder."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on this file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_holder(path: Path) -> Mapping[str, object]:
    """The last holder of the lock: `pid`, `host`, `since` and its details; empty while they are being written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return {}
    try:
        return _parse_holder(os.read(descriptor, MAX_HOLDER_BYTES))
    except OSError:
        return {}
    finally:
        os.close(descriptor)


def held_in_words(what: Path, lock: Path) -> str:
    """Say who holds the lock on `what`."""
    holder = read_holder(lock)
    who = "process {pid} on {host} since {since}".format(**holder) if holder else "another process"
    return f"{what} is held by {who}"


def _parse_holder(content: bytes) -> Mapping[str, object]:
    try:
        holder = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return holder if isinstance(holder, dict) and holder.keys() >= {"pid", "host", "since"} else {}


def _release_in_child() -> None:
    """Close the locks in a forked child, since a grader that outlives a killed run would keep holding them."""
    for lock in list(_held):
        lock.close()


os.register_at_fork(after_in_child=_release_in_child)


class SupportsClose(Protocol):
    """A file, a connection, or an object with one."""

    def close(self) -> None:
        """Close the object."""


@contextmanager
def closed_on_error(opened: SupportsClose) -> Iterator[None]:
    """Close the object if the block fails."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


@contextmanager
def new_export(path: Path, force: bool) -> Iterator[Path]:
    """A temporary path to write to, for a file at `path`, which it may replace with `force`."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or a pipe"
        raise ConfigError(f"{path} is {what}, but an export is one file; give another --output")
    if path.exists() and not force:
        raise ConfigError(f"{path} already exists; replace it with --force, or give another --output")
    draft = path.with_name(f".{path.name}.draft-{os.getpid()}")
    try:
        yield draft
        # sync before renaming, so that a power failure cannot leave an empty file
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}; give another --output") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def require_plain(path: Path) -> None:
    """Raise `OSError` if the path is not a plain file.

    In a stranger's directory it may be a pipe without a writer, or a link to an endless device.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_file(path: Path, max_bytes: int) -> bytes:
    """The content of a file of at most `max_bytes`; raises `OSError`."""
    require_plain(path)
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"is larger than {max_bytes / 2**20:g} MiB", str(path))
    return data


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_atomic(path: Path, data: bytes | Iterable[bytes], hint: str) -> None:
    """Replace the file at `path`, or leave it unchanged and raise `StoreFull` or `StoreError` with `hint`.

    `data` may be an iterable of parts.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        draft.unlink(missing_ok=True)
        with draft.open("xb") as file:  # never through an existing link
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        what = "the disk is full" if error.errno in _FULL else f"it cannot be written: {error.strerror}"
        kind = StoreFull if error.errno in _FULL else StoreError
        raise kind(f"{path}: {what}. {hint}") from error


def real_path(path: Path) -> Path:
    """The path without links; unlike `Path.resolve`, no error of any Python if they lead in a circle."""
    return Path(os.path.realpath(path))


_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})")


def _descriptor(path: Path) -> int | None:
    """The number of the open file that a path names."""
    match = _DESCRIPTOR.fullmatch(str(path))
    return _STANDARD.get(str(path)) if match is None else int(match[1])


def write_output(path: Path, data: bytes, hint: str) -> bool:
    """Write the file that a user has named, and return whether it is one: what is open already, such as /dev/fd/3, a
    device or a pipe is written to, not replaced.

    Not for a path in a stranger's directory, where it may be a link to a device.
    """
    number = _descriptor(path)
    if number is None and (path.is_dir() or path.is_file() or not path.exists()):
        write_atomic(real_path(path), data, hint)
        return True
    try:
        if number is not None and not os.get_inheritable(number):  # one of this process, not of the user
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        with open(path if number is None else number, "wb", closefd=number is None) as file:
            file.write(data)
    except OSError as error:
        raise StoreError(f"{path}: it cannot be written: {error.strerror}. {hint}") from error
    return False


def make_folder(folder: Path, hint: str) -> None:
    """Create a folder if it does not exist; raises `StoreError` with `hint`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be created: {error.strerror}. {hint}") from error
