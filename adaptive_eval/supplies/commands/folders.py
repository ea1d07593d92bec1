"""The folders in which commands run, and what is kept of them in the directory of the run."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from adaptive_eval.base.files import make_folder, read_file, write_atomic
from adaptive_eval.base.temporary_folders import TemporaryFolder, clear_leftovers, remove_tree
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.supplies.opening import file_name

PREFIX = "adaptive-eval-commands-"
TRANSCRIPTS = "transcripts"
"""A folder in the logs of a run."""
MAX_TRANSCRIPT_BYTES = 64 * 2**20
FREE_SPACE = "Free some space there; the same command goes on"


class TrialFolders:
    """New folders outside the run's directory, where no program finds files of others beside its own.

    They are removed at the end, and if this process is killed, by the next one that runs commands.
    """

    def __init__(self, logs: Path | None, redactor: Redactor) -> None:
        """`logs` is the folder of what is kept; None: nothing is."""
        self._logs, self._redactor = logs, redactor
        self._temporary: TemporaryFolder | None = None
        self._opening = asyncio.Lock()
        self._numbers = count()

    @property
    def keeps(self) -> bool:
        """Whether anything can be kept."""
        return self._logs is not None

    @property
    def holds(self) -> Sequence[int]:
        """The descriptor that keepers of commands hold open: the folders stay while one of them lives."""
        return () if self._temporary is None else (self._temporary.lock,)

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[Path]:
        """A new folder for a trial."""
        async with self._opening:
            if self._temporary is None:
                await asyncio.to_thread(clear_leftovers, PREFIX)
                self._temporary = TemporaryFolder(PREFIX)
        path = self._temporary.path / str(next(self._numbers))
        path.mkdir()
        try:
            yield path
        finally:
            await asyncio.to_thread(remove_tree, path)

    async def close(self) -> None:
        """Remove all folders."""
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.remove)

    def keep_transcript(self, folder: Path, path: str, name: str) -> str | None:
        """Keep a file of a trial's folder; returns its path from the run's directory, None if it cannot be kept."""
        if self._logs is None:
            return None
        try:
            file = (folder / path).resolve(strict=True)
            if not file.is_relative_to(folder.resolve()):
                return None
            data = read_file(file, MAX_TRANSCRIPT_BYTES)
        except (OSError, ValueError, RuntimeError):  # no such file, no possible name, or links in a circle
            return None
        text = self._redactor.text(data.decode("utf-8", "surrogateescape"))
        make_folder(self._logs / TRANSCRIPTS, FREE_SPACE)
        suffix = "".join(re.findall(r"\.[A-Za-z0-9]{1,10}$", file.name))
        target = self._logs / TRANSCRIPTS / (file_name(name) + suffix)
        write_atomic(target, text.encode("utf-8", "surrogateescape"), FREE_SPACE)
        return str(target.relative_to(self._logs.parent))
