"""The runs that a monitor serves, by name: a single run, or all in a folder."""

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, cast

from adaptive_eval.base.errors import StoreError
from adaptive_eval.core.types import Verdict
from adaptive_eval.report.ending import status_at_end
from adaptive_eval.report.gate import OPEN, UNDECIDED, gate_outcome
from adaptive_eval.report.label_file import LABELS_FILE
from adaptive_eval.report.looks import NamedLook, read_look
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import Results
from adaptive_eval.report.stored import StoredRun
from adaptive_eval.show.serve.feed import FileMark
from adaptive_eval.store.locate import has_database, runs_in


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
    """Largest possible number of trials; None before the first look."""
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
    """Summarize a run from its latest look and a few counts, whether or not it has published results.

    If there are labels, the corrected results are used.
    """
    with closing(RunReader.open(path)) as reader, reader.consistent_read():
        events, questions = reader.events(), len(reader.ids("questions", "key"))
        config, stored = reader.configurations()[-1], reader.latest_look()
        models = cast(list[object], config["models"])
        named_look = None if stored is None else read_look(stored)
        verdicts = Counter(
            comparison.verdict for comparison in (() if named_look is None else named_look.look.comparisons)
        )
        status, reason = ("running", None) if mark.running else status_at_end(events, reader.trial_count())
        best = None if named_look is None else _best_model(named_look)
        is_gated = bool(config["objective"].get("gate"))  # type: ignore[attr-defined]
        gate = (OPEN if mark.running else UNDECIDED) if is_gated else None
        has_labels = (path / LABELS_FILE).exists()
        results = _newest_results(reader, running=mark.running) if is_gated or has_labels else None
        if results is not None and is_gated:
            gate = gate_outcome(results.gate)
        if results is not None and has_labels:
            verdicts = Counter(Verdict(pair.verdict) for pair in results.pairs)
            best = next((row.name for row in results.models if row.score is not None), None)
        return RunBrief(
            name=path.name,
            status=status,
            reason=reason,
            models=len(models),
            questions=questions,
            trials=reader.trial_count(),
            cap=None if named_look is None else _max_trials(config, len(models) * questions),
            **{str(verdict): verdicts[verdict] for verdict in Verdict},
            best=best,
            gate=gate,
            created=reader.created,
            updated=mark.written,
        )


def _newest_results(reader: RunReader, *, running: bool) -> Results | None:
    run = StoredRun(reader)
    return run.latest(rows=False) if running else run.results(running=False, rows=False)


def _max_trials(config: Mapping[str, Any], cells: int) -> int:
    fixed, budget = int(cells * config["trials"]["max"]), config["budget"]["trials"]
    return fixed if budget is None else min(fixed, int(budget))


def _best_model(named_look: NamedLook) -> str | None:
    names = (named_look.models[model] for model in named_look.look.order if isfinite(named_look.look.scores[model]))
    return next(names, None)
