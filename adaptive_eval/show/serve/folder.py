"""The runs that a monitor serves, by name: a single run, or all in a folder."""

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from adaptive_eval.base.errors import StoreError
from adaptive_eval.core.types import Verdict
from adaptive_eval.report.ending import status_at_end
from adaptive_eval.report.gate import OPEN, UNDECIDED, gate_outcome
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import setting
from adaptive_eval.report.stored import StoredRun
from adaptive_eval.show.serve.feed import FileMark
from adaptive_eval.store.locate import has_database, runs_in
from adaptive_eval.store.lock import is_held


@dataclass(frozen=True, slots=True)
class RunBrief:
    """Summary of one run in a row."""

    name: str
    """Name of its directory."""
    status: str
    reason: str | None
    """Why it finished, or why it did not."""
    models: int
    questions: int
    trials: int
    cap: int | None
    """Largest possible number of trials, with those of removed models; None before the first look."""
    resolved: int
    tied: int
    open: int
    out_of_reach: int
    blocked: int
    undecided_by_labels: int
    best: str | None
    gate: str | None
    """The worst outcome of all models; None if there is no gate."""
    created: float
    updated: float
    """Seconds since 1970."""


class RunsFolder:
    """A directory that is a run or contains runs; listed on each call, since runs come and go."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._briefs: dict[str, tuple[FileMark, RunBrief]] = {}

    @property
    def is_run(self) -> bool:
        """Whether the directory itself is a run."""
        return has_database(self.path)

    def runs(self) -> dict[str, Path]:
        """Runs by name; no others are ever opened."""
        return runs_in(self.path)

    def briefs(self) -> list[RunBrief]:
        """Summaries of all readable runs."""
        return [brief for name, path in self.runs().items() if (brief := self._brief(name, path)) is not None]

    def _brief(self, name: str, path: Path) -> RunBrief | None:
        mark = FileMark.of(path)
        cached = self._briefs.get(name)
        if cached is not None and cached[0] == mark and mark.is_quiet:
            return cached[1]
        try:
            brief = read_brief(path, mark)
        except StoreError:
            return None
        self._briefs[name] = mark, brief
        return brief


def read_brief(path: Path, mark: FileMark) -> RunBrief:
    """Summarize a run from its newest stored report and a few counts."""
    with closing(RunReader.open(path)) as reader, reader.consistent_read():
        events, config = reader.events(), reader.configurations()[-1]
        running = mark.running or is_held(path)  # what began meanwhile is not killed
        results = StoredRun(reader, events=events).results(running=running, rows=False, sums=False)
        status, reason = ("running", None) if running else status_at_end(events, reader.trial_count())
        if status == "finished" and results is not None:  # labels may decide more than the run did
            reason = results.run.reason or reason
        gate = (OPEN if running else UNDECIDED) if setting(config, "objective", "gate") else None
        verdicts = Counter[str](() if results is None else (pair.verdict for pair in results.pairs))
        cost = None if results is None else results.cost
        scored = [] if results is None else [row.name for row in results.models if row.score is not None]
        return RunBrief(
            name=path.name,
            status=status,
            reason=reason,
            models=len(cast(list[object], config["models"])),
            questions=len(reader.log.questions()),
            trials=reader.trial_count(),
            cap=None if cost is None else cost.allowed_trials + cost.stored_trials - cost.trials,
            **{str(verdict): verdicts[verdict] for verdict in Verdict},
            best=next(iter(scored), None),
            gate=gate if results is None else gate_outcome(results.gate),
            created=reader.created,
            updated=mark.written,
        )
