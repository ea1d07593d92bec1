"""How a run has ended, in words and as an exit code.

An error that ended it is kept in its store: whoever looks at the run later has not seen the terminal.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePath
from typing import NamedTuple

from adaptive_eval.base.errors import ExitCode, first_line, stop_in_words
from adaptive_eval.base.lists import first_few
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.first_round import UNITS, cap_key, cap_unit, smallest_cap
from adaptive_eval.config.planning import GUESSED_START_SECONDS, ending_gpu_seconds
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Reason, Verdict
from adaptive_eval.core.answer_kinds import INCOMPLETE, AnswerKind
from adaptive_eval.core.types import Cause, Lost
from adaptive_eval.graders.rubric import open_rubric, unsure_grades
from adaptive_eval.machine.records import ASKED_AGAIN
from adaptive_eval.notes import (
    AnswersLost,
    AnswerUngraded,
    Event,
    ModelSetAside,
    RunBegun,
    RunFinished,
    RunResumed,
    RunStopped,
    ServerLaunched,
    ServersNoticed,
    TrialsImported,
    TrialsRegraded,
    events_of_kind,
    events_since_start,
    newest_command,
    newest_turn,
)
from adaptive_eval.notes.beginnings import counted_runs
from adaptive_eval.notes.lives import Override
from adaptive_eval.report.finding import gate_line
from adaptive_eval.report.gate import FAIL, PASS, UNDECIDED, gate_outcome
from adaptive_eval.report.lines import capitalised, safe_line
from adaptive_eval.report.needs import MAX_NAMES, OF_TRIALS, Need, NeedKind, needs_of
from adaptive_eval.report.results import GateRow, PairRow, Results
from adaptive_eval.report.status import Status


class FatalError(NamedTuple):
    """An error that ended a run."""

    reason: str
    exit_code: ExitCode

    @property
    def headline(self) -> str:
        """The reason in one line."""
        return first_line(self.reason)


def find_fatal_error(events: Sequence[Event]) -> FatalError | None:
    """The error that ended a run; None if there was none, or the run has been resumed since."""
    last = newest_turn(events)
    if not isinstance(last, RunStopped) or last.error is None:
        return None
    exit_code = ExitCode.FAILED if last.exit_code is None else last.exit_code
    return FatalError(last.reason or last.error, exit_code)


class Restart(NamedTuple):
    """What the next start of a run pays for its servers, besides answers."""

    seconds: float = 0.0
    """Until all are ready."""
    gpu_seconds: float = 0.0
    """The same, times their GPUs."""
    ending_gpu_seconds: float = 0.0
    """What a cap keeps back for their end."""


class End(NamedTuple):
    """How a run has ended: what the headline says, and the exit code."""

    sentence: str
    exit_code: ExitCode


@dataclass(frozen=True, kw_only=True)
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
    unsure: AnswerKind = INCOMPLETE
    """Kinds of answers that the rubric leaves unsure."""
    caps: Mapping[str, float] = field(default_factory=dict)
    """Its limits, by key of `budget`."""
    short_caps: Mapping[str, float] = field(default_factory=dict)
    """Those of them that do not cover what comes next, with the values that would."""
    restart: Restart = Restart()
    grader_errors: tuple[str, ...] = ()
    """Why its last start could not grade answers: the first error of each model."""
    asked: bool = True
    """Its last start has stored an answer."""
    imported: bool = False
    """Its trials are those of logs: no command has begun it."""
    lacks_questions: bool = False
    """These logs lack what it takes to ask its models again."""
    counted: tuple[str, ...] = ()
    """Runs whose answers count in it, or have: as recorded models or R0, with the grades that they have there."""
    without_reason: str = ""
    """How it stands where there is no reason, in a sentence."""
    arguments: tuple[str, ...] | None = None
    """Those of `adaptive-eval run` that go on with it, if they are known."""
    overrides: Mapping[str, Override] = field(default_factory=dict)
    """What earlier commands have set, too, and a new run does not know."""
    place: str = "RUN"
    """Its folder in commands, quoted for a shell."""

    @property
    def gate(self) -> tuple[GateRow, ...]:
        """The gate's outcome for each model; empty if there is no gate."""
        return () if self.results is None else self.results.gate

    @property
    def why(self) -> str:
        """The end in one sentence, with the outcome of a gate."""
        why = self.end.sentence
        return f"{UNDECIDED}: {why[0].lower()}{why[1:]}" if self.gated and self.results is None else why

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command line."""
        return self.end.exit_code

    @cached_property
    def end(self) -> End:
        """How it has ended: by an error, or else by its reason, with the outcome of a gate that is settled."""
        if self.fatal_error is not None:
            return End(capitalised(stop_in_words(*self.fatal_error)), self.fatal_error.exit_code)
        outcome = gate_outcome(self.gate)
        if self.results is not None and outcome in OF_OUTCOMES and (outcome == FAIL or self.reason is Reason.SETTLED):
            return End(_gate_lines(self.results, outcome), OF_OUTCOMES[outcome])
        return self._end_of_reason

    @property
    def _end_of_reason(self) -> End:
        if self.reason is None:
            return End(self.without_reason or STOPPED, ExitCode.STOPPED)
        if self.reason is Reason.ALARM:
            aside = [name for name, lost in self.lost.items() if lost.cause is Cause.ANSWERS]
            alarms = () if self.results is None else self.results.alarms
            named = [safe_line(name) for name in aside or dict.fromkeys(row.model for row in alarms)]
            return End(f"Stopped because of the answers of {first_few(named, MAX_NAMES)}.", ExitCode.SPENT)
        if self.reason is Reason.BLOCKED or (self.reason is Reason.SETTLED and self._is_void):
            causes = {lost.cause for lost in self.lost.values()}
            lacks_more = self.needs.keys() - {NeedKind.MODEL} or Cause.BUDGET in causes
            code = ExitCode.SPENT if lacks_more and not causes & OF_SERVERS else ExitCode.ENDPOINTS
            return End(self._lack_sentence, code)
        if self.reason is Reason.BUDGET:
            return End(self._budget_sentence, ExitCode.SPENT)
        return OF_REASONS[self.reason]

    @cached_property
    def undecided(self) -> Sequence[tuple[PairRow, Need]]:
        """The undecided comparisons with their needs."""
        return [] if self.results is None else needs_of(self.results)

    @cached_property
    def needs(self) -> Mapping[NeedKind, Need]:
        """What undecided comparisons lack, as far as this run can get it, in the order of the next steps."""
        lacking: dict[NeedKind, Need] = {}
        for _, need in self.undecided:
            lacking[need.kind] = need.joined(lacking.get(need.kind, need))
        kinds = set(lacking)
        if self.reason is Reason.BLOCKED or kinds & {NeedKind.ANSWERS, NeedKind.GRADES}:
            kinds -= OF_TRIALS  # what is missing comes first, and more trials would lack as much
        elif self.reason in OF_LIMITS and (kinds & OF_TRIALS or not kinds):
            kinds = kinds - OF_TRIALS | {NeedKind.TRIALS}
        if self.reason is Reason.BLOCKED and (NeedKind.MODEL in kinds or not kinds):
            causes = {NeedKind.GRADES if lost.cause is Cause.GRADER else NeedKind.MODEL for lost in self.lost.values()}
            kinds = (kinds - {NeedKind.MODEL} | causes) or {NeedKind.MODEL}
        if self.exceeds_reserve and self.reason in (Reason.BLOCKED, *OF_LIMITS):
            kinds = {NeedKind.MODEL}  # larger limits would only pay for the excess
        return {kind: lacking.get(kind, Need(kind)) for kind in NeedKind if kind in kinds}

    @property
    def _is_void(self) -> bool:
        """Whether labels or answers that repeat leave a comparison undecided which the grades decide."""
        pairs = () if self.results is None else self.results.pairs
        by_labels = any(pair.verdict == Verdict.UNDECIDED_BY_LABELS for pair in pairs)
        return by_labels or NeedKind.INDEPENDENT_ANSWERS in self.needs

    @property
    def _lack_sentence(self) -> str:
        names: dict[str, list[str]] = {}
        for name, lost in self.lost.items():
            if lost.cause is not Cause.ANSWERS:  # a need says it
                names.setdefault(lost.headline, []).append(name)
        losses = first_few([f"{first_few(models, MAX_NAMES)} ({why})" for why, models in names.items()], MAX_NAMES)
        if self.lost and not self.trials:
            return f"Stopped: {NO_ANSWER}: {losses}."
        needs = [need for kind, need in self.needs.items() if need.models or kind in OF_TRIALS]
        further = [
            need.missing(self.results) for need in needs if self.results is not None and need.kind is not NeedKind.MODEL
        ]
        aside = [f"a model that was set aside{f': {losses}' if names else ''}"] if names or not further else []
        begin = "Stopped" if any(lost.cause in OF_SERVERS for lost in self.lost.values()) else "Finished"
        return f"{begin}: undecided comparisons need {' and '.join([*aside, *further])}."

    @property
    def _budget_sentence(self) -> str:
        if self.results is None:  # the next step says which budget it needs, if it is known
            begin = "Stopped without a ranking" if self.trials else "No answers were requested"
            hint = "" if self.short_caps else " adaptive-eval validate shows the budget it needs."
            return f"{begin}: the budget does not cover the first round.{hint}"
        totals = [
            f"what comes next may take it to {plain_number(total, 15)} {cap_unit(key)}, but budget.{key} is "
            f"{plain_number(cap, 15)}"
            for key, total in self.short_caps.items()
            for cap in [self.caps.get(key, 0.0)]
        ]
        return f"Stopped by the budget: {' and '.join(totals) or 'it does not cover the next round'}."

    @property
    def exceeds_reserve(self) -> bool:
        """Whether a model was set aside because its answers cost more than caps reserve."""
        return any(lost.cause is Cause.EXCESS for lost in self.lost.values())


@dataclass(frozen=True, kw_only=True)
class Ended(Ending):
    """The end of a run, as displays show it."""

    status: Status
    directory: Path
    servers_up: int = 0
    """Servers that get time to end now."""


def find_ending(
    events: Sequence[Event], results: Results | None, trials: int, decisions: Decisions, of_others: int = 0
) -> Ending:
    """Work out how a run that is over has ended from all of its events; `of_others`: further trials, of models that are
    no longer in the run."""
    stored = trials + of_others
    all_events, events = events, events_since_start(events)
    return Ending(
        reason=_finish_reason(events, results),
        results=results,
        trials=trials,
        lost={event.model: Lost(event.cause, event.reason) for event in events_of_kind(events, ModelSetAside)},
        fatal_error=find_fatal_error(events),
        gated=decisions.objective.gate,
        unsure=AnswerKind(unsure_grades(open_rubric(decisions.rubric), in_gate=decisions.objective.gate).kinds),
        caps=decisions.budget.caps,
        short_caps=_short_caps(events),
        restart=_restart(decisions, all_events) if isinstance(decisions, RunConfig) else Restart(),
        imported=_is_imported_alone(events),
        counted=tuple(dict.fromkeys(event.run for event in counted_runs(all_events))),
        lacks_questions=any(event.lacks_questions is True for event in events_of_kind(events, TrialsImported)),
        without_reason=_describe_stop(events),
        grader_errors=tuple(event.error for event in events_of_kind(events, AnswerUngraded)),
        asked=has_dropped_answers(events)
        or not any(event.trials == stored for event in events_of_kind(events, RunResumed)),
        arguments=find_arguments(all_events),
        overrides={} if (command := newest_command(all_events)) is None else command.overrides or {},
    )


def _restart(config: RunConfig, events: Sequence[Event]) -> Restart:
    took = {event.model: event.seconds for event in events_of_kind(events, ServerLaunched)}
    starts = [config.models[number] for number in config.launched]
    seconds = [took.get(model.name, GUESSED_START_SECONDS) for model in starts]
    gpu_seconds = sum(each * (model.gpus or 0.0) for each, model in zip(seconds, starts, strict=True))
    return Restart(max(seconds, default=0.0), gpu_seconds, ending_gpu_seconds(config.models, config.serving_groups))


def has_dropped_answers(events: Sequence[Event]) -> bool:
    """Whether answers were dropped, to ask for them again."""
    notices = events_of_kind(events, ServersNoticed)
    discarded = any(event.discarded for event in events_of_kind(events, AnswersLost))
    return discarded or any(event.notice == ASKED_AGAIN for event in notices)


def is_asking_again(events: Sequence[Event]) -> bool:
    """Whether a start has dropped answers, to ask for them again, and none has finished since."""
    ends = [at for at, event in enumerate(events) if isinstance(event, RunFinished)]
    return has_dropped_answers(events[max(ends, default=0) :])


def build_ended(
    events: Sequence[Event],
    results: Results | None,
    status: Status,
    directory: Path,
    config: RunConfig,
    *,
    servers_up: int = 0,
) -> Ended:
    """Build the `Ended` that displays show."""
    of_others = sum(row.trials for row in status.used.beside)
    ending = find_ending(events, results, status.used.spent.trials, config, of_others)
    ending = in_folder(ending, directory, config.name, shlex.quote(str(directory)))
    shared = {field.name: getattr(ending, field.name) for field in fields(ending)}
    return Ended(**shared, status=status, directory=directory, servers_up=servers_up)


def in_folder(ending: Ending, directory: Path, name: str, place: str) -> Ending:
    """The end of the run called `name` that lies in this folder now; if it was begun in a folder of another name, the
    command that continues it names the present one as `place`, quoted for a shell."""
    ending, words = replace(ending, place=place), [*(ending.arguments or ())]
    given = dict(pairwise(words)).get("--run-dir")
    if not words or directory.absolute().name == (name if given is None else PurePath(given).name):
        return ending
    at = len(words) if given is None else words.index("--run-dir")
    return replace(ending, arguments=(*words[:at], "--run-dir", *shlex.split(place), *words[at + 2 :]))


def find_arguments(events: Sequence[Event]) -> tuple[str, ...] | None:
    """Arguments of the latest command that began or resumed the run, or that will resume it with its new grades."""
    commands = [
        event.arguments
        for event in events
        if isinstance(event, RunBegun | TrialsImported) or (isinstance(event, TrialsRegraded) and event.arguments)
    ]
    return tuple(safe_line(word, len(word)) for word in commands[-1]) if commands and commands[-1] else None


def was_killed(events: Sequence[Event]) -> bool:
    """Whether a run that is not running was killed: its last start has stored no end, or not even its beginning."""
    last = events_since_start(events)
    return not _is_imported_alone(events) and not any(isinstance(event, RunFinished | RunStopped) for event in last)


def was_killed_since(events: Sequence[Event]) -> bool:
    """Whether a start was killed after an earlier one had ended: the newest report may tell of that end."""
    return was_killed(events) and any(isinstance(event, RunFinished | RunStopped) for event in events)


def status_at_end(events: Sequence[Event], trials: int) -> tuple[str, str | None]:
    """The status of a run that is not running, and its reason: why it finished, or a sentence on why it did not."""
    last, fatal_error = newest_turn(events), find_fatal_error(events)
    if isinstance(last, RunFinished):
        if last.reason.ends(trials):
            return "finished", str(last.reason)
        return "stopped", str(last.reason) if last.reason is Reason.ALARM else NO_ANSWER
    if isinstance(last, TrialsRegraded):
        return "stopped", "its answers were graded again; resume the run to judge them"
    if was_killed(events):
        return "killed", None
    return "stopped", None if fatal_error is None else fatal_error.headline


def _is_imported_alone(events: Sequence[Event]) -> bool:
    """Whether a run has the trials of other logs, and has asked nothing itself."""
    return bool(events_of_kind(events, TrialsImported)) and not events_of_kind(events, RunResumed)


def _describe_stop(events: Sequence[Event]) -> str:
    """The end of a run that has stored no reason for it."""
    if _is_imported_alone(events):
        return IMPORTED
    if was_killed(events):
        return KILLED
    return REGRADED if events_of_kind(events, RunFinished) else STOPPED


def _finish_reason(events: Sequence[Event], results: Results | None) -> Reason | None:
    """The reason that the run stored last, or that its results give: trials of an imported run may be enough.

    Results of a run that did not finish give a sentence instead, which a start may leave there if it is killed.
    """
    last, reason = newest_turn(events), None if results is None else results.run.reason
    if isinstance(last, RunFinished) and not (reason == Reason.SETTLED and results is not None and results.corrected):
        return last.reason  # else labels have decided every comparison since
    return Reason(reason) if reason in set(Reason) else None


def _short_caps(events: Sequence[Event]) -> dict[str, float]:
    """The caps that do not cover what comes next, with the smallest that would, by key of `budget`: the next round of a
    run that the budget ended, or the verdicts on stored answers without a grade."""
    last, regraded = newest_turn(events), events_of_kind(events, TrialsRegraded)
    totals = (last.short_caps if isinstance(last, RunFinished) else None) or (
        regraded[-1].short_caps if regraded else None
    )
    return {cap_key(name): smallest_cap(name, total) for name, total in (totals or {}).items() if name in UNITS}


NO_ANSWER = "no usable answer came from any model"
"""They may have answered: samples of a task whose scorer fails cannot be used."""
IMPORTED = "Imported: the trials are from logs, and were judged once."
REGRADED = "Regraded: the run had finished, but now a comparison is open."
STOPPED = "Stopped. The same command continues from the stored answers."
KILLED = "Killed: the process died before the run ended. The same command resumes it from the stored answers."
OF_LIMITS = (Reason.BUDGET, Reason.WALL_TIME, Reason.GPU_TIME)
OF_SERVERS = frozenset({Cause.SERVER, Cause.EXCESS})
OF_OUTCOMES = {PASS: ExitCode.REACHED, UNDECIDED: ExitCode.SPENT, FAIL: ExitCode.WORSE}
"""The exit code for each outcome of a gate."""
OF_REASONS = {
    Reason.SETTLED: End("Finished: everything is decided.", ExitCode.REACHED),
    Reason.OUT_OF_REACH: End(
        "Finished: no further comparison is likely to be decided within the limits.", ExitCode.SPENT
    ),
    Reason.WALL_TIME: End("Stopped by the time limit. The incomplete round is stored, but not scored.", ExitCode.SPENT),
    Reason.GPU_TIME: End(
        "Stopped by the budget: servers were held for all its GPU hours. The incomplete round is stored, but not "
        "scored.",
        ExitCode.SPENT,
    ),
}
"""The end that each reason says by itself."""


def _gate_lines(results: Results, outcome: str) -> str:
    lines = [gate_line(results, row) for row in results.gate if row.outcome == outcome]
    more = [f"And {len(lines) - MAX_NAMES} more."] if len(lines) > MAX_NAMES else []
    return " ".join([*lines[:MAX_NAMES], *more])
