"""CPU of everything that a process has started, whatever becomes of it: read off /proc, again and again."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EVERY_SECONDS = 0.2
TICKS = os.sysconf("SC_CLK_TCK")


class FamilyCpu:
    """Of all descendants of this process, those that were left behind by theirs included; not of itself."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, str], float] = {}
        """What each process had used when it was seen last, by its number and its beginning."""

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
                self._look()

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _look(self) -> None:
        found = {fields[0]: fields for path in Path("/proc").glob("[0-9]*/stat") if (fields := _fields(path))}
        known = {pid for pid, begun in self._seconds if pid in found and found[pid][2] == begun}
        family, more = known, {os.getpid()}
        while more:  # a process whose parent has ended has another one, but it is known by then
            family |= more
            more = {pid for pid, (_, parent, _, _) in found.items() if parent in family} - family
        for pid in family - {os.getpid()}:
            _, _, begun, seconds = found[pid]
            self._seconds[pid, begun] = seconds


def _fields(path: Path) -> tuple[int, int, str, float] | None:
    """A process, its parent, when it began, and its seconds; None where it is gone."""
    try:
        pid, _, rest = path.read_text().partition(" ")
    except OSError:
        return None
    fields = rest.rpartition(")")[2].split()
    return int(pid), int(fields[1]), fields[19], (int(fields[11]) + int(fields[12])) / TICKS
