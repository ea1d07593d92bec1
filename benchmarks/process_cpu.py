"""CPU of everything that a process has started, whatever becomes of it: read off /proc, again and again."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

EVERY_SECONDS = 0.2
TICKS = os.sysconf("SC_CLK_TCK")


class FamilyCpu:
    """Of all descendants of this process, those that were left behind by theirs included; not of itself."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, str], float] = {}
        """What each process had used when it was seen last, by its number and its beginning."""
        self._history: list[tuple[float, dict[tuple[int, str], float]]] = []
        """The same, at every look of those who watch."""

    @property
    def seconds(self) -> float:
        """What all of them have used so far."""
        self._look()
        return sum(self._seconds.values())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look again and again: what ends between two looks has used a little more than is known."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(EVERY_SECONDS):
                self.look()

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def seconds_at(self, moment: float, process: int | None = None) -> float:
        """What all of them, or one, had used by a moment since 1970, between two looks as if it went on evenly."""
        moments = [at for at, _ in self._history]
        used = [
            sum(seconds for (pid, _), seconds in seen.items() if process in (None, pid)) for _, seen in self._history
        ]
        return float(np.interp(moment, moments, used))

    def look(self) -> None:
        """See what all of them have used now."""
        self._look()
        self._history.append((time.time(), dict(self._seconds)))

    def forget(self) -> None:
        """Begin with the look of now."""
        self._history.clear()
        self.look()

    def _look(self) -> None:
        processes = {fields[0]: fields for path in Path("/proc").glob("[0-9]*/stat") if (fields := _fields(path))}
        alive = {pid for pid, begun in self._seconds if pid in processes and processes[pid][2] == begun}
        family, more = alive, {os.getpid()}
        while more:  # a process whose parent has ended has another one, but it is known by then
            family |= more
            more = {pid for pid, (_, parent, _, _) in processes.items() if parent in family} - family
        for pid in family - {os.getpid()}:
            _, _, begun, seconds = processes[pid]
            self._seconds[pid, begun] = seconds


def _fields(path: Path) -> tuple[int, int, str, float] | None:
    """A process, its parent, when it began, and its seconds; None where it is gone."""
    try:
        pid, _, tail = path.read_text().partition(" ")
    except OSError:
        return None
    fields = tail.rpartition(")")[2].split()
    return int(pid), int(fields[1]), fields[19], (int(fields[11]) + int(fields[12])) / TICKS
