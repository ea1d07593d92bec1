"""Places for segments: the folder `answers` of the run directory, or a URL that fsspec knows.

A run directory may come from a stranger. Segments it names must have names of a fixed form and lie in its own folder
`answers`, which must not be a link. A URL it names is opened only if the user has given it: in the configuration of a
run that is started, or in the variable ADAPTIVE_EVAL_ANSWERS, which lists allowed URLs, separated by spaces.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from adaptive_eval.base.errors import AdaptiveEvalError, StoreError
from adaptive_eval.base.files import make_folder, remove_drafts, write_whole
from adaptive_eval.base.imports import load_extra
from adaptive_eval.base.sections import ANSWERS_URL

ANSWERS_FOLDER = "answers"
VARIABLE = "ADAPTIVE_EVAL_ANSWERS"
NAME = re.compile(r"[0-9]{1,12}-[0-9a-f]{12}\.parquet")
BLOCK = 1024 * 1024
OBJECTS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci"}
"""Schemes of storages without folders, where creating one would create a bucket."""
MEND = "What was committed is intact: free space or mend the cause"


def is_given(url: str, given: str | None) -> bool:
    """Whether the user has allowed this URL: by `given`, or in the variable."""
    under = [one for one in (given, *os.environ.get(VARIABLE, "").split()) if one]
    return ".." not in url.split("/") and any(url.startswith(one.rstrip("/") + "/") for one in under)


def require_name(name: str) -> str:
    """Return the name of a segment; raises `StoreError` if it has another form, as it might leave its folder."""
    if not NAME.fullmatch(name):
        raise StoreError(f"{name!a:.80} is not the name of a segment: the run was not written by adaptive-eval")
    return name


class LocalAnswers:
    """Segments in a local folder; every failure is a `StoreError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, data: bytes) -> None:
        """Write a segment durably and atomically: a draft is renamed to the target."""
        make_folder(self._folder, MEND)
        path = self._folder / require_name(name)
        write_whole(path, data, MEND)
        with suppress(OSError):  # a file system that does not support it needs none
            descriptor = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def open(self, name: str) -> tuple[BinaryIO, int]:
        """Open a segment for random access, with its size; it must be a regular file, not a link."""
        path = self._folder / require_name(name)
        try:
            if self._folder.is_symlink():
                raise StoreError(f"{self._folder} is a link; put the answers of a run in its own folder")
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"the segment {path} cannot be read: {error.strerror}. Restore a copy of it") from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise StoreError(f"the segment {path} is not a file; restore a copy of it")
        return os.fdopen(descriptor, "rb"), status.st_size

    def remove(self, name: str) -> None:
        """Remove a segment and its drafts, if they exist."""
        path = self._folder / require_name(name)
        with suppress(OSError):
            path.unlink(missing_ok=True)
            remove_drafts(path)


class RemoteAnswers:
    """Segments at a URL, through fsspec; every failure is a `StoreError`."""

    def __init__(self, url: str) -> None:
        if not re.fullmatch(ANSWERS_URL, url):
            raise StoreError(f"{url!a:.200} is not the URL of a folder")
        self._url = url.rstrip("/")

    @cached_property
    def _files(self) -> tuple[Any, str]:
        """The file system, and the folder in it."""
        fsspec = load_extra("fsspec", "segments", "answers at a URL")
        with self._explained("be opened"):
            files, folder = fsspec.core.url_to_fs(self._url, use_listings_cache=False)
            return files, str(folder)

    def write(self, name: str, data: bytes) -> None:
        """Upload the object in one piece, so that it appears whole."""
        files, folder = self._files
        with self._explained("be written"):
            if urlsplit(self._url).scheme not in OBJECTS:
                files.makedirs(folder, exist_ok=True)
            files.pipe_file(f"{folder}/{require_name(name)}", data)

    def open(self, name: str) -> tuple[BinaryIO, int]:
        """Open the object; only the blocks that are read are fetched."""
        files, folder = self._files
        with self._explained("be read"):
            source = files.open(f"{folder}/{require_name(name)}", "rb", block_size=BLOCK)
            size = int(source.seek(0, os.SEEK_END))
            source.seek(0)
            return source, size

    def remove(self, name: str) -> None:
        """Remove the object if it exists and can be removed."""
        files, folder = self._files
        with suppress(StoreError), self._explained("be removed"), suppress(FileNotFoundError):
            files.rm_file(f"{folder}/{require_name(name)}")

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except AdaptiveEvalError:
            raise
        except Exception as error:  # every storage has its own errors, and few are OSErrors
            said = f"{type(error).__name__}: {error}".strip().partition("\n")[0][:300]
            raise StoreError(f"the answers at {self._url} cannot {what} ({said})") from error


AnswerPlace = LocalAnswers | RemoteAnswers
"""A place for segments."""


def place_at(directory: Path, url: str) -> AnswerPlace:
    """The place for a URL in the ledger; an empty one is the folder of the run."""
    if not url:
        return LocalAnswers(directory / ANSWERS_FOLDER)
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc:  # written atomically, which fsspec does not promise
        return LocalAnswers(Path(unquote(parts.path)))
    return RemoteAnswers(url)
