"""End of a run, in words and as an exit code.

An error that ended it is kept in its store: whoever looks at the run later has not seen the terminal.
"""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import NamedTuple

from adaptive_eval.config.load import CONFIGURATIONS
from adaptive_eval.core import Reason, Verdict
from adaptive_eval.core.types import Cause, Lost
from adaptive_eval.errors import AdaptiveEvalError, ExitCode, StoreError, exit_code_of, first_line
from adaptive_eval.record.finding import gate_line
from adaptive_eval.record.gate import FAIL, UNDECIDED, gate_outcome
from adaptive_eval.record.lines import first_few, safe_line, safe_name
from adaptive_eval.record.recording_need import recording_need
from adaptive_eval.record.results import GateRow, PairRow, Results
from adaptive_eval.record.status import Status
from adaptive_eval.record.words import draws_questions
from adaptive_eval.store import (
    CommitBatch,
    Event,
    ModelSetAside,
    RunBegun,
    RunFinished,
    RunResumed,
    RunStopped,
    Store,
    TrialsImported,
    TrialsRegraded,
    events_of_kind,
    events_since_start,
)


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do next."""

    says: str
    command: str | None = None
    """The command that does it."""


class FatalError(NamedTuple):
    """An error that ended a run."""

    reason: str
    exit_code: ExitCode

    @property
    def headline(self) -> str:
        """The reason in one line."""
        return first_line(self.reason)


def note_fatal_error(store: Store, error: Exception) -> None:
    """Store that this error ended the run, where the store can still be written.

    What is raised on purpose says nothing secret and is told whole, but for where the run lies; of any other error only
    the kind is kept, since nobody knows what its text holds.
    """
    kind = type(error).__name__
    text = str(error) if isinstance(error, AdaptiveEvalError) else f"an error that was not foreseen ({kind})"
    here = store.directory  # "." has no name, and says nothing
    reason = text.replace(str(here), here.name) if here.name else text
    with suppress(StoreError):
        store.commit(CommitBatch(events=[RunStopped(kind, reason, exit_code_of(error))]))


def find_fatal_error(events: Sequence[Event]) -> FatalError | None:
    """The error that ended a run; None if there was none, or the run has been resumed since."""
    last = events[-1] if events else None
    if not isinstance(last, RunStopped) or last.error is None:
        return None
    return FatalError(last.reason or last.error, ExitCode.FAILED if last.exit_code is None else last.exit_code)


NAMED = 3
"""Models that one sentence names."""
LONGEST_NAME = 32
ENOUGH = "decided the rest in 6 of 10 such runs"
RESERVE = 1.1
"""Caps are to be so much above what is needed: trials are reserved at their most."""
AFRESH = "--fresh, or another --run-dir"


def _rounded_up(value: float) -> float:
    """The next number of two digits."""
    step = 10.0 ** (math.floor(math.log10(max(value, 1e-6))) - 1)
    return float(f"{math.ceil(value / step - 1e-9) * step:.2g}")


def _told(settings: Mapping[str, float]) -> str:
    return " and ".join(f"{key} to {value:,.15g}" for key, value in settings.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a run, from what it has stored."""

    reason: Reason | None
    """None: the user or an error stopped it, or it was killed."""
    results: Results | None
    """None where it ended before its first look."""
    trials: int
    """Committed, over all starts."""
    lost: Mapping[str, Lost] = field(default_factory=dict)
    """Models that were set aside, and why."""
    fatal_error: FatalError | None = None
    """The error that ended it, as its store tells it."""
    gated: bool = False
    """The run has a gate."""
    asked: bool = True
    """Its last start has stored an answer."""
    imported: bool = False
    """Its trials are those of logs: no command has begun it."""
    without_reason: str = ""
    """How it stands where there is no reason, in a sentence."""
    arguments: tuple[str, ...] | None = None
    """Those of `adaptive-eval run` that go on with it, if they are known."""

    @property
    def fixed(self) -> bool:
        """All trials of the fixed design were there at the first look."""
        if self.results is None or len(self.results.looks) != 1:
            return False
        asked = [row for row in self.results.models if row.recorded is None and row.set_aside is None]
        return all(row.trials >= self.results.fixed_each for row in asked)

    @property
    def gate(self) -> tuple[GateRow, ...]:
        """The gate's outcome for each model; empty if there is no gate."""
        return () if self.results is None else self.results.gate

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command line."""
        if self.fatal_error is not None:
            return self.fatal_error.exit_code
        if gate_outcome(self.gate) == FAIL:
            return ExitCode.WORSE
        if gate_outcome(self.gate) == UNDECIDED and self.reason is Reason.SETTLED:
            return ExitCode.SPENT
        causes = {lost.cause for lost in self.lost.values()}
        if self.reason is Reason.BLOCKED and (self.ungraded or Cause.BUDGET in causes) and Cause.SERVER not in causes:
            return ExitCode.SPENT  # the servers do answer
        return ExitCode.STOPPED if self.reason is None else EXIT_CODES[self.reason]

    @property
    def ungraded(self) -> bool:
        """Some comparison is undecided because of trials without a grade."""
        return any(lost.cause is Cause.GRADER for lost in self.lost.values()) or bool(self._ungraded_models)

    @property
    def _ungraded_models(self) -> list[str]:
        """Models in play whose ungraded answers keep a comparison from being decided."""
        if self.results is None:
            return []
        blocked = [pair for pair in self.results.pairs if pair.verdict == Verdict.BLOCKED]
        named = {name for pair in blocked for name in (pair.better, pair.worse)}
        return [row.name for row in self.results.models if row.name in named and row.ungraded and not row.set_aside]

    @property
    def why(self) -> str:
        """The end in one sentence, with the outcome of a gate."""
        why = self._why
        return f"{UNDECIDED}: {why[0].lower()}{why[1:]}" if self.gated and self.results is None else why

    @property
    def _why(self) -> str:
        if self.fatal_error is not None:
            return f"Stopped by an error: {self.fatal_error.reason}"
        outcome = gate_outcome(self.gate)
        if self.results is not None and outcome is not None and (outcome == FAIL or self.reason is Reason.SETTLED):
            lines = [gate_line(self.results, row) for row in self.gate if row.outcome == outcome]
            return " ".join([*lines[:NAMED], *([f"And {len(lines) - NAMED} more."] if len(lines) > NAMED else [])])
        if self.reason is Reason.BLOCKED and self.lost and not self.trials:
            return f"Stopped: no answer came from any model: {first_few(self._losses, NAMED)}."
        if self.reason is Reason.BLOCKED and (self.lost or self._ungraded_models):
            return f"Finished: what is blocked needs {' and '.join(self._missing_for_blocked())}."
        if self.reason is Reason.SETTLED and self.results is not None and not self.results.compares:
            return PRECISE
        if self.reason is None:
            return self.without_reason or STOPPED
        return why_finished(self.reason, self.trials > 0, self.results is not None, self.fixed)

    @property
    def larger_horizon(self) -> int | None:
        """Trials a question that would probably decide the rest, where the horizon has ended the run.

        Twice what the undecided pairs need as they stand: once they were given up they have little error left. That
        was enough in six of ten simulated runs, and as much as they need in three (benchmarks/extension.md).
        """
        if self.results is None or self.reason is not Reason.OUT_OF_REACH or (most := self._most) is None:
            return None
        needs = [pair.trials_needed for pair in self._out_of_reach]
        needed = 2 * math.ceil(max((need or 0.0 for need in needs), default=0.0))
        if needed <= most and all(needs) and any(self._larger_caps(self._trials_for(1.0))):
            return most  # a cap alone stands in the way
        return int(_rounded_up(max(2 * most, needed)))

    @property
    def _out_of_reach(self) -> list[PairRow]:
        """Comparisons that were given up."""
        pairs = () if self.results is None else self.results.pairs
        return [pair for pair in pairs if pair.verdict == Verdict.OUT_OF_REACH]

    @property
    def _most(self) -> int | None:
        """Today's `trials.max`."""
        trials = {} if self.results is None else self.results.decisions.get("trials")
        most = trials.get("max") if isinstance(trials, Mapping) else None
        return most if isinstance(most, int) else None

    @property
    def _caps(self) -> dict[str, float]:
        """Caps of the budget."""
        caps = {} if self.results is None else self.results.decisions.get("budget")
        given = caps if isinstance(caps, Mapping) else {}
        return {key: cap for key, cap in given.items() if isinstance(cap, int | float)}

    def _trials_for(self, horizon_grows: float) -> float:
        """Further trials of models in undecided comparisons up to a horizon larger by this factor."""
        assert self.results is not None
        named = {name for pair in self._out_of_reach for name in (pair.better, pair.worse)}
        asked = [row for row in self.results.models if row.recorded is None]
        each = horizon_grows * self.results.fixed_each
        return sum(max(each - row.stored_trials, 0.0) for row in asked if row.name in named)

    def _larger_caps(self, further: float) -> Iterator[tuple[str, float]]:
        """Caps that are too small for so many further trials at the mean cost of all so far, and the values that allow
        them. Time cannot be known beforehand."""
        assert self.results is not None
        cost = self.results.cost
        hours = (cost.counted_gpu_seconds or cost.in_all("gpu_seconds")) / 3600
        used = {key: cost.in_all(key) for key in ("trials", "tokens", "usd")} | {"gpu_hours": hours}
        for key in sorted(used.keys() & self._caps.keys()):
            if (need := RESERVE * used[key] * (1 + further / max(cost.trials, 1))) > self._caps[key]:
                yield f"budget.{key}", _rounded_up(need)

    def next_steps(self, run: str) -> Iterator[Advice]:
        """The next steps; a command names the run as `run`."""
        if self.gated and not self.asked:
            asked = "this start asked nothing, the outcome is an earlier one's: for a new build begin anew"
            yield self._step(asked, fresh=True)
        models, reason = () if self.results is None else self.results.models, self.reason
        regrade = shlex.join(["adaptive-eval", "regrade", run, *self._grader_arguments()])
        if self.fatal_error is not None and self.fatal_error.exit_code is ExitCode.SPENT:  # an alarm
            yield self._step("after a change of prompt, model or server begin anew", fresh=True)
            yield Advice("after one of grader or answer keys:", regrade)
        elif self.fatal_error is not None:
            yield self._step("mend that, then")
        elif self.ungraded and any(row.signals.get("unanswered") for row in models):
            yield self._step("see to the servers that fail some requests every time, then")
            again = "which asks those of models that were set aside again; for others begin anew"
            yield self._step(again, fresh=True)
        elif self.ungraded:
            yield self._step("raise grader.timeout, or see to the server of the judge or verifier, then")
            again = "which grades the stored answers again; where the grader itself was mended, or to do no more:"
            yield Advice(again, regrade)
        elif ExitCode.SPENT in (self.exit_code, EXIT_CODES[reason] if reason else None):
            doubted = list(self._doubtful_answers(run))
            yield from doubted
            if reason is not Reason.SETTLED:
                yield self._for_more()
            elif not doubted:
                none = "every comparison is called, and no further trial changes that: to know more begin anew"
                yield self._step(none, fresh=True)
        elif reason is Reason.SETTLED:
            yield Advice("check the grader on some answers:", f"adaptive-eval label {run}")
        elif reason is Reason.BLOCKED:
            yield self._step("see to what is missing, then")
        elif self.imported and self.arguments is None:
            file = f"{run}/config.yaml"
            yield Advice(f"fill in the addresses in {file}, then:", f"adaptive-eval run {file} --run-dir {run}")
        else:
            yield Advice("run the same command again") if self.arguments is None else self._step("go on")

    def _step(self, says: str, settings: Mapping[str, float] = MappingProxyType({}), *, fresh: bool = False) -> Advice:
        """A step that ends with the command of the run, with changed settings; a `fresh` one begins it anew."""
        if self.arguments is None:
            return Advice(
                f"{says} ({AFRESH})" if fresh else f"{says.removesuffix(', then')}, then run the same command again"
            )
        words = list(self.arguments)
        if fresh:
            given = words.index("--run-dir") if "--run-dir" in words else len(words)
            words = [*words[:given], *words[given + 2 :], "--fresh"]
        changed = {*settings} | ({"trials.epochs"} if "trials.max" in settings else set())
        old = {at for at, word in enumerate(words) if word.split("=")[0] in changed}
        words = [word for at, word in enumerate(words) if not {at, at + 1} & old]
        words += [word for key, value in settings.items() for word in ("--set", f"{key}={value:.15g}")]
        return Advice(f"{says}:", shlex.join(["adaptive-eval", "run", *words]))

    def _grader_arguments(self) -> list[str]:
        """Those of `adaptive-eval regrade` for the configuration that the run was started with."""
        config, *others = self.arguments or ["CONFIG"]
        sets = [word for at, word in enumerate(others) if "--set" in others[max(at - 1, 0) : at + 1]]
        return ["--config", *([config, *sets] if PurePath(config).suffix in CONFIGURATIONS else ["CONFIG"])]

    def _for_more(self) -> Advice:
        results = self.results
        if results is not None and draws_questions(results.decisions):
            more = (
                "raise the budget, where that has ended it; or ask more questions (questions.limit), or several trials "
                "of each (without trials.draw), in a run of its own"
            )
            return self._step(more, fresh=True)
        if results is not None and self.reason is Reason.BUDGET:
            wanted = dict(self._larger_caps(results.trials_to_go or 0.0))
            return self._step(f"raise {_told(wanted) or 'the budget, then'}", wanted)
        if results is None or (larger := self.larger_horizon) is None or (most := self._most) is None:
            return self._step("raise the budget, then")
        recordings = [need for pair in self._out_of_reach if (need := recording_need(results, pair)) is not None]
        larger = max(most, *(need.trials for need in recordings)) if recordings else larger
        wanted = dict(self._larger_caps(self._trials_for(larger / most)))
        wanted |= {"trials.max": larger} if larger > most else {}
        needs = [pair.trials_needed for pair in self._out_of_reach]
        if recordings or (not any(needs) and any(one.kind == "horizon" for one in results.warnings)):
            anew = "begin anew, since another raise would not decide the rest"
            if recordings:
                anew = f"begin anew with {max(recordings)}, whose own error is the limit"
            raised = f"; set {_told(wanted)}" if wanted else ""
            return self._step(f"{anew}{raised}", wanted, fresh=True)
        why = ENOUGH if all(needs) else "how many the rest would need is not known"
        return self._step(f"raise {_told(wanted)} ({why})", wanted)

    def _doubtful_answers(self, run: str) -> Iterator[Advice]:
        """Failed answers that could explain a call of the gate, and what to do."""
        doubted = {name for row in self.gate for name in row.doubted}
        for row in () if self.results is None else self.results.models:
            if row.name in doubted:
                found = {"are empty": row.signals.get("empty", 0), "timed out": row.signals.get("timed_out", 0)}
                found["have no grade"] = row.ungraded
                told = ", ".join(f"{number:,} {what}" for what, number in found.items() if number)
                yield Advice(f"{safe_name(row.name, LONGEST_NAME)}: of {row.stored_trials:,} answers {told}")
        if doubted:
            yield Advice("see them:", f"adaptive-eval monitor {run} --web")
            mend = "further trials do not change what these may be worth: mend the server, its settings or the grader"
            yield self._step(f"{mend}, and begin anew", fresh=True)

    @property
    def _losses(self) -> list[str]:
        """Models that were set aside, those with one reason together."""
        names: dict[str, list[str]] = {}
        for name, lost in self.lost.items():
            names.setdefault(lost.headline, []).append(name)
        return [f"{first_few(some, NAMED)} ({why})" for why, some in names.items()]

    def _missing_for_blocked(self) -> Iterator[str]:
        if self.lost:
            yield f"a model that was set aside: {first_few(self._losses, NAMED)}"
        if self._ungraded_models:
            yield f"the grades of trials that have none: those of {first_few(self._ungraded_models, NAMED)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Ending):
    """The end of a run as whoever runs or watches it is told."""

    status: Status
    directory: Path
    servers_up: int = 0
    """Servers that get time to end now."""


def find_ending(events: Sequence[Event], results: Results | None, trials: int, *, gated: bool) -> Ending:
    """Work out how a run that is over has ended from all of its events."""
    all_events, events = events, events_since_start(events)
    return Ending(
        reason=_finish_reason(events, results),
        results=results,
        trials=trials,
        lost={event.model: Lost(event.cause, event.reason) for event in events_of_kind(events, ModelSetAside)},
        fatal_error=find_fatal_error(events),
        gated=gated,
        imported=is_imported_alone(events),
        without_reason=_without_reason(events),
        asked=not any(event.trials == trials for event in events_of_kind(events, RunResumed)),
        arguments=find_arguments(all_events),
    )


def build_ended(
    events: Sequence[Event],
    results: Results | None,
    status: Status,
    directory: Path,
    *,
    gated: bool,
    servers_up: int = 0,
) -> Ended:
    """Build the `Ended` that displays are told."""
    found = find_ending(events, results, status.trials, gated=gated)
    shared = {one.name: getattr(found, one.name) for one in fields(found)}
    return Ended(**shared, status=status, directory=directory, servers_up=servers_up)


def find_arguments(events: Sequence[Event]) -> tuple[str, ...] | None:
    """The arguments of the command that has last begun the run or gone on with it, or goes on by its new grades."""
    known = [one.arguments for one in events if isinstance(one, RunBegun | TrialsImported)]
    known += [one.arguments for one in events_of_kind(events_since_start(events), TrialsRegraded) if one.arguments]
    return tuple(safe_line(word, len(word)) for word in known[-1]) if known and known[-1] else None


def published(ending: Ending) -> Ending:
    """The end as others may read it: its command names no folders of this machine."""
    shown = (f"…/{PurePath(word).name}" if PurePath(word).is_absolute() else word for word in ending.arguments or ())
    return ending if ending.arguments is None else replace(ending, arguments=tuple(shown))


def was_killed(events: Sequence[Event]) -> bool:
    """Whether a run that nobody carries on was killed: its last start has left no end."""
    last = events_since_start(events)
    return any(isinstance(one, RunBegun) for one in last) and not any(
        isinstance(one, RunFinished | RunStopped) for one in last
    )


def is_imported_alone(events: Sequence[Event]) -> bool:
    """Whether a run has the trials of other logs, and has asked nothing itself."""
    return bool(events_of_kind(events, TrialsImported)) and not events_of_kind(events, RunResumed)


def _without_reason(events: Sequence[Event]) -> str:
    if is_imported_alone(events):
        return IMPORTED
    if was_killed(events):
        return KILLED
    return REGRADED if events_of_kind(events, RunFinished) else STOPPED


def _finish_reason(events: Sequence[Event], results: Results | None) -> Reason | None:
    """The reason that the run stored last, or that its results give: trials of an imported run may be enough."""
    last = events[-1] if events else None
    if isinstance(last, RunFinished):
        return last.reason
    found = None if results is None else results.run.reason
    return None if found is None else Reason(found)


def why_finished(reason: Reason, asked: bool, looked: bool, fixed: bool) -> str:
    """Why a run is finished, in a sentence: after some answers or none, after a look or before it, with a fixed number
    of trials or not."""
    if reason is Reason.BUDGET and not looked:
        return TOO_SMALL.format("Finished without a ranking" if asked else "No answers were requested")
    return ALL_ISSUED if reason is Reason.OUT_OF_REACH and fixed else SENTENCES[reason]


IMPORTED = "Imported: these are the trials of logs, judged once."
REGRADED = "Regraded: the run was finished, and by the new grades a comparison is open."
STOPPED = "Stopped. Every answer that was graded is stored."
KILLED = "Killed: the process has left no end of the run. Every answer that was committed is stored."
PRECISE = "Finished: every score is as precise as was asked."
TOO_SMALL = "{}: the budget does not cover the first round. adaptive-eval validate says what would."
ALL_ISSUED = "Finished: all trials are there, and they do not decide every comparison."
SENTENCES = {
    Reason.SETTLED: "Finished: every comparison is resolved or tied.",
    Reason.OUT_OF_REACH: "Finished: the rest is out of reach of the trials that are left.",
    Reason.BUDGET: "Finished: the next round does not fit the budget.",
    Reason.WALL_TIME: "Finished: the time is up. The round that was incomplete is stored, and kept out of the scores.",
    Reason.GPU_TIME: (
        "Finished: servers were held for all the GPU hours that the budget allows. The round that was incomplete is "
        "stored, and kept out of the scores."
    ),
    Reason.BLOCKED: "Finished: what is blocked needs a model that was set aside.",
}
EXIT_CODES = {
    Reason.SETTLED: ExitCode.REACHED,
    Reason.OUT_OF_REACH: ExitCode.SPENT,
    Reason.BUDGET: ExitCode.SPENT,
    Reason.WALL_TIME: ExitCode.SPENT,
    Reason.GPU_TIME: ExitCode.SPENT,
    Reason.BLOCKED: ExitCode.ENDPOINTS,
}
