"""The runs that a monitor serves, by name: one, or those that lie in a folder; and how each of them stands."""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.errors import StoreError
from adaptive_eval.monitor.feed import Mark
from adaptive_eval.results import Results, read_results
from adaptive_eval.store import EventKind, RunReader
from adaptive_eval.store.schema import DATABASE_FILE


@dataclass(frozen=True, slots=True)
class Brief:
    """One run in one row."""

    name: str
    """Of its directory."""
    status: str
    reason: str | None
    models: int
    questions: int
    trials: int
    cap: int | None
    """What it could come to at most; None before the first look."""
    resolved: int
    tied: int
    open: int
    out_of_reach: int
    blocked: int
    best: str | None
    created: float
    updated: float
    """Seconds since 1970."""


class Folder:
    """A directory that is a run, or has runs in it; looked into anew each time, since runs come and go."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._briefs: dict[str, tuple[Mark, Brief]] = {}

    @property
    def is_run(self) -> bool:
        """The directory itself is a run."""
        return (self.path / DATABASE_FILE).exists()

    def runs(self) -> dict[str, Path]:
        """The runs by name: only these are ever opened."""
        if self.is_run:
            return {self.path.name: self.path}
        try:
            found = sorted(self.path.iterdir())
        except OSError:  # it is not there yet, or no more
            return {}
        return {one.name: one for one in found if os.access(one / DATABASE_FILE, os.R_OK)}

    def briefs(self) -> list[Brief]:
        """How every run stands; one that cannot be read is left out."""
        return [brief for name, path in self.runs().items() if (brief := self._brief(name, path)) is not None]

    def _brief(self, name: str, path: Path) -> Brief | None:
        mark = Mark.of(path)
        known = self._briefs.get(name)
        if known is not None and known[0] == mark and mark.settled:
            return known[1]
        try:
            brief = read_brief(path, mark)
        except StoreError:
            return None
        self._briefs[name] = mark, brief
        return brief


def read_brief(path: Path, mark: Mark) -> Brief:
    """A run in one row, from what it has published and a few counts."""
    results = read_results(path)
    with closing(RunReader.open(path)) as reader, reader.one_moment():
        events = reader.events()
        finished = bool(events) and events[-1].kind is EventKind.FINISHED and not mark.running
        last = results.looks[-1] if results is not None and results.looks else None
        return Brief(
            name=path.name,
            status="running" if mark.running else "finished" if finished else "stopped",
            reason=str(events[-1].body["reason"]) if finished else None,
            models=len(results.models) if results is not None else len(reader.ids("models", "name")),
            questions=len(reader.ids("questions", "key")),
            trials=reader.trial_count(),
            cap=None if results is None else _cap(results),
            resolved=last.resolved if last is not None else 0,
            tied=last.tied if last is not None else 0,
            open=last.open if last is not None else 0,
            out_of_reach=last.out_of_reach if last is not None else 0,
            blocked=last.blocked if last is not None else 0,
            best=None if results is None else _best(results),
            created=reader.created,
            updated=mark.written,
        )


def _cap(results: Results) -> int:
    """The maximum of trials for everyone, or the budget where that is less."""
    budget = results.decisions.get("budget")
    trials = budget.get("trials") if isinstance(budget, dict) else None
    return min(results.cost.fixed_trials, trials) if isinstance(trials, int) else results.cost.fixed_trials


def _best(results: Results) -> str | None:
    return next((model.name for model in results.models if model.score is not None), None)
