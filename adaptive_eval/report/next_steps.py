"""Next steps after a run: each says what to do, and mostly ends with a command that does it.

A command is that of the run, with a further flag, or with settings that hold instead of earlier ones.
"""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path, PurePath
from types import MappingProxyType

from adaptive_eval.base.errors import ExitCode, first_line
from adaptive_eval.base.lists import first_few
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.config.load import CONFIGURATIONS
from adaptive_eval.core import Reason
from adaptive_eval.core.answer_kinds import AnswerKind, answer_kinds
from adaptive_eval.core.conclusions import MAX_TIMES, MAX_TRIALS
from adaptive_eval.core.types import Cause
from adaptive_eval.graders.judge_forms import VOTES_DIFFER
from adaptive_eval.machine.usage import AnswerFault
from adaptive_eval.report.ending import Ending
from adaptive_eval.report.gate import UNDECIDED
from adaptive_eval.report.lines import safe_line, several
from adaptive_eval.report.needs import MAX_NAMES, NeedKind, ends_by_alarm, models_with, round_up, some_models
from adaptive_eval.report.results import ModelRow, PairRow, Results
from adaptive_eval.report.warnings import remedies
from adaptive_eval.report.words import deciding_rule, draws_questions

AFRESH = "another --run-dir, or --fresh without --run-dir"
AGAIN = "run the same command again"
RESERVE = 3
"""Caps, and the `trials.max` of a new run, are advised as so many times the need at the present difference."""
DELTA_RESERVE = 1.4
"""A new `delta` is advised as the difference plus so many times what could be certified if there were none: of 155
pairs, a new run then decided 138, by 1 time as much 79, and without the difference 26."""
MAX_DELTA = 0.25
"""No `delta` is advised that is a larger share of the range of scores."""
UNKNOWN_DELTA = "DELTA"
NO_MATTER = "start over with a larger {}, if such a difference does not matter to you"
ASK_AGAIN = "fix the server; then discard the answers that the alarm is about, and request them again"
"""Words before the command that does it."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A next step for the user."""

    text: str
    command: str | None = None
    """The command that does it."""


def next_steps(ending: Ending) -> Iterator[Advice]:
    """The next steps after the end of a run."""
    if not ending.asked and has_settled_gate(ending):
        yield _step(ending, "this start requested nothing: for a new build, start over", fresh=True)
    results, error = ending.results, ending.fatal_error
    has_alarm = ending.reason is Reason.ALARM or (results is not None and (results.alarms or ends_by_alarm(results)))
    if error is not None and error.exit_code is not ExitCode.SPENT:
        yield _step(ending, "fix that, then")
    elif error is not None or has_alarm:
        yield from _after_alarm(ending)
    elif ending.reason is None:
        yield _after_stop(ending)
    else:
        yield from _for_needs(ending)


def has_settled_gate(ending: Ending) -> bool:
    """Whether the gate has an outcome that no further start of this run changes."""
    return bool(ending.gate) and ending.reason in (Reason.SETTLED, Reason.OUT_OF_REACH)


def hide_folders(ending: Ending) -> Ending:
    """Remove the folders of this machine from the command, for published reports."""
    shown = (f"…/{PurePath(word).name}" if PurePath(word).is_absolute() else word for word in ending.arguments or ())
    return ending if ending.arguments is None else replace(ending, arguments=tuple(shown))


# -- commands ---------------------------------------------------------------------------------------------------------


def _step(
    ending: Ending,
    text: str,
    settings: Mapping[str, float | str] = MappingProxyType({}),
    *,
    fresh: bool = False,
    flag: str | None = None,
) -> Advice:
    """A step that ends with the command of the run, with changed settings or a further flag; a `fresh` one begins it
    anew."""
    if ending.arguments is None:
        values = [(key, _typed(key, value)) for key, value in settings.items()]
        changes = [f"{key}: {value}" for key, value in values if f"{key} to {value}" not in text]
        if fresh:
            return Advice(f"{text} ({'; '.join([*changes, AFRESH])})")
        how = f" with {' and '.join([*filter(None, [flag]), *changes])}" if flag or changes else ""
        link = " " if text.endswith(", then") else ": " if how else ", then "
        return Advice(f"{text}{link}{AGAIN}{how}")
    words, left = list[str](), iter(ending.arguments)
    for word in left:
        setting = next(left, "") if word == "--set" else None
        key, _, value = (setting or "").partition("=")
        if setting is None:
            words.append(word)
        elif key not in settings and (value.strip() or not fresh):  # a new run has nothing that `KEY=` could undo
            words += [word, setting]
    if fresh:
        words = _of_a_new_run(words, {key: each.value for key, each in ending.overrides.items() if key not in settings})
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={_typed(key, value)}")]
    return Advice(f"{text}:", shlex.join(["adaptive-eval", "run", *words, *filter(None, [flag])]))


def _of_a_new_run(words: list[str], overrides: Mapping[str, str]) -> list[str]:
    """The words of a command with another folder, and with the settings that the run remembers."""
    typed = {text.partition("=")[0].strip() for word, text in pairwise(words) if word == "--set"}
    known = [word for key, value in overrides.items() if key not in typed for word in ("--set", f"{key}={value}")]
    first = words.index("--set") if typed else len(words)
    words = [*words[:first], *known, *words[first:]]  # of two that concern one key, the later one holds
    if "--run-dir" not in words[:-1]:
        return [*words, "--fresh"]
    at = words.index("--run-dir") + 1
    given = words[at].rstrip("/")  # --fresh would choose another folder
    free = next(name for number in count(2) if not Path(name := f"{given}-{number}").exists())
    return [*words[:at], free, *words[at + 1 :]]


def _typed(key: str, value: float | str) -> str:
    unit = "s" if key == "budget.wall_time" else ""
    return value if isinstance(value, str) else f"{plain_number(value, 15, grouped=False)}{unit}"


def _regrade(ending: Ending, change: str) -> Advice:
    """A step that grades the stored answers again by the configuration that the run was started with; not where those
    of other runs count, which have only their old grades here."""
    if ending.counted:
        there = f"grade the answers of {some_models(ending.counted)} again, which count here"
        return _step(ending, f"{change}, {there}, and start over", fresh=True)
    config, *others = ending.arguments or ["CONFIG"]
    words = [config, *(word for at, word in enumerate(others) if "--set" in others[max(at - 1, 0) : at + 1])]
    is_file = PurePath(config).suffix in CONFIGURATIONS and "--model" not in others  # else of questions
    command = f"adaptive-eval regrade {ending.place} --config {shlex.join(words if is_file else ['CONFIG'])}"
    return Advice(f"{change}, grade the stored answers again:", command)


# -- steps for the ends of a run --------------------------------------------------------------------------------------


def _after_stop(ending: Ending) -> Advice:
    """How to go on with a run that stopped without a reason."""
    if ending.imported and ending.lacks_questions:
        return Advice(
            "to request more trials, import the logs again with a configuration that has the questions (--config)"
        )
    if ending.imported and ending.arguments is None:
        file = f"{ending.place}/config.yaml"
        return Advice(f"fill in the addresses in {file}, then:", f"adaptive-eval run {file} --run-dir {ending.place}")
    return Advice(AGAIN) if ending.arguments is None else _step(ending, "to continue")


def _after_alarm(ending: Ending) -> Iterator[Advice]:
    """Next steps after an alarm about answers."""
    results = ending.results
    kinds = {row.since is not None for row in results.alarms} if results is not None else set()
    if True in kinds or (results is not None and models_with(results, AnswerFault.REPEATED)):
        yield _ask_again(ending)
    if kinds != {True}:  # else a server has changed, and that is all
        yield from _complete_answers(ending)


def _for_needs(ending: Ending) -> Iterator[Advice]:
    """Next steps for what undecided comparisons lack."""
    steps = [step for kind in ending.needs for step in STEPS[kind](ending)]
    yield from steps
    if not steps and ending.end.exit_code is ExitCode.SPENT:
        none = "every comparison is decided, and further trials do not change that: for more precision, start over"
        yield _step(ending, none, fresh=True)
    elif not steps and (ending.results is None or not ending.results.corrected):
        yield Advice("check the grader on some answers:", f"adaptive-eval label {ending.place}")


# -- steps for each need ----------------------------------------------------------------------------------------------


def _complete_answers(ending: Ending) -> Iterator[Advice]:
    rows = _incomplete_models(ending)
    kinds = AnswerKind(answer_kinds(" ".join(signal for row in rows for signal in row.signals)))
    advice = remedies(kinds & ending.unsure)
    if not rows or any(row.recorded is None for row in rows):
        change = f"if you change the server, the model, the prompt or sampling{f' (use {advice})' if advice else ''}"
        yield _step(ending, f"{change}, start over", fresh=True)
    if recorded := [row for row in rows if row.recorded is not None]:
        names = some_models(row.name for row in recorded)
        runs = some_models(dict.fromkeys(row.recorded or "" for row in recorded))
        record = f"the answers of {names} come from {runs}: fix and record that run again"
        yield _step(ending, f"{record}, or ask {names} in this run, and start over", fresh=True)
    when = "{truncated: true}, or timed_out, context_length or empty"
    rubric = f"the rubric (a category with when: {when}, lets such answers count)"
    yield _regrade(ending, f"if you change the grader, answer keys or {rubric}")


def _incomplete_models(ending: Ending) -> list[ModelRow]:
    """The models whose answers are to be complete: those that the need or an alarm names, or else all."""
    if ending.results is None:
        return []
    need, alarms = ending.needs.get(NeedKind.COMPLETE_ANSWERS), ending.results.alarms
    names = need.models if need is not None else [row.model for row in alarms if row.since is None]
    return [row for row in ending.results.models if row.name in names or not names]


def _retry_answers(ending: Ending) -> Iterator[Advice]:
    rows = () if ending.results is None else ending.results.models
    if any(row.set_aside is not None and row.signals.get("unanswered") for row in rows):
        fix = "fix the servers or commands that fail on some questions every time, then"
        yield _step(ending, fix, flag="--ask-again")
    again = "for models that were not set aside, and if you edit a command's files, start over"
    yield _step(ending, again, fresh=True)


def _independent_answers(ending: Ending) -> Iterator[Advice]:
    yield _ask_again(ending, "more trials are of no use while answers repeat: ")
    yield _step(ending, "or, if the model is so sure of its answers, let them count", {"stopping.on_alarm": "never"})


def _ask_again(ending: Ending, why: str = "") -> Advice:
    """How to replace the answers that an alarm is about, unless an import cannot request any."""
    if ending.imported and (ending.arguments is None or ending.lacks_questions):
        return _step(ending, f"{why}fix the server, and start over", fresh=True)
    return _step(ending, f"{why}{ASK_AGAIN}", flag="--ask-again")


def _grade_again(ending: Ending) -> Iterator[Advice]:
    if ending.short_caps:
        yield from _raise_limits(ending)
        return
    others = [error for error in ending.grader_errors if VOTES_DIFFER not in error]
    if others or not ending.grader_errors:
        error = f" (its error: {safe_line(first_line(others[0]))})" if others else ""
        slow = "if the grader ran out of time or its server failed, raise grading.timeout or fix that server"
        yield _step(ending, f"{slow}{error}, then")
    no_majority = f"{VOTES_DIFFER}, and none has a majority: if you add votes or a judge"
    yield _regrade(ending, "if you change the grader" if len(others) == len(ending.grader_errors) else no_majority)


def _restore_models(ending: Ending) -> Iterator[Advice]:
    """What to do about models that were set aside, by the causes."""
    if ending.exceeds_reserve:
        yield _step(ending, "fix the servers that do not keep to max_tokens, and start over", fresh=True)
        return
    causes = {lost.cause for lost in ending.lost.values()}
    if Cause.BUDGET in causes and NeedKind.TRIALS not in ending.needs:
        yield from _raise_limits(ending)
    if Cause.GRADER in causes and NeedKind.GRADES not in ending.needs:
        yield from _grade_again(ending)
    if Cause.SERVER in causes or not causes & {Cause.BUDGET, Cause.GRADER}:
        lost = [
            f"{safe_line(name)}: {loss.headline}" for name, loss in ending.lost.items() if loss.cause is Cause.SERVER
        ]
        is_named = not lost or ending.reason is Reason.BLOCKED  # by the headline
        why = "" if is_named else f" ({safe_line(first_few(lost, MAX_NAMES))})"
        yield _step(ending, f"start the servers, or fix the cause{why}, then")


def _label_more(ending: Ending) -> Iterator[Advice]:
    text = f"label more answers of {some_models(ending.needs[NeedKind.LABELS].models)}, a NUMBER fixed beforehand:"
    yield Advice(text, f"adaptive-eval label {ending.place} --number NUMBER")


def _correct_grader(ending: Ending) -> Iterator[Advice]:
    yield _regrade(ending, "the grader makes too many mistakes: fix it")
    results = ending.results
    assert results is not None  # which have the pairs
    if draws_questions(results.decisions):
        yield Advice("or start a new run with more questions, and label more")
        return
    largest, asked = results.setting("trials", "max"), max(row.trials for row in results.models)
    fewest = math.ceil(2 * asked * largest / results.max_trials_per_model)  # else the grades may end it as soon
    more = {"trials.min": fewest, "trials.max": 2 * largest}
    yield _step(ending, "or start over with a larger trials.min and trials.max, and label more", more, fresh=True)


def _raise_limits(ending: Ending) -> Iterator[Advice]:
    larger = _larger_limits(ending)
    raised = " and ".join(f"{key} to {_typed(key, value)}" for key, value in larger.items())
    results, others, notes = ending.results, NeedKind.NEW_RUN in ending.needs, list[str]()
    pairs = _pairs_that_need(ending, NeedKind.TRIALS)
    if results is not None and [*larger] == ["trials.max"]:  # else limits say what it costs
        more, models = _further_answers(results, larger["trials.max"], pairs)
        whose = " and ".join(map(safe_line, models)) if len(models) < 3 else f"{len(models)} models"
        notes += [f"up to {several(more, 'more answer')} of {whose}"]
    if NeedKind.TRIALS in ending.needs and 0 < len(pairs) < len(ending.undecided):
        notes += [f"for {len(pairs)} of the undecided comparisons"]
    remarks = f" ({', '.join(notes)})" if notes else ""
    yield _step(ending, f"raise {raised or 'the budget, then'}{remarks}", larger)
    if results is not None and "trials.max" in larger and not others and not any(pair.second is None for pair in pairs):
        key, delta = _larger_delta(results, pairs)
        if delta != UNKNOWN_DELTA:
            yield _step(ending, f"or {NO_MATTER.format(key)}", {key: delta}, fresh=True)


def _start_over(ending: Ending) -> Iterator[Advice]:
    """How to get a verdict on pairs that this run cannot decide: by more answers, or as a tie; a new run has to decide
    those that this one can, too."""
    results = ending.results
    assert results is not None  # which have the pairs
    pairs = _pairs_that_need(ending, NeedKind.NEW_RUN)
    both = [*pairs, *_pairs_that_need(ending, NeedKind.TRIALS)]
    models = {name for pair in pairs for name in (pair.first, pair.second)}
    alone = all(pair.second is None for pair in pairs) and not results.gate  # no delta lets a value be tied
    if draws_questions(results.decisions):
        yield Advice("start a new run with more questions, or with several trials of each (without trials.draw)")
    elif recorded := [row.name for row in results.models if row.recorded and row.name in models]:
        limit = f"the recorded answers of {some_models(recorded)} may be too few"
        yield _step(ending, f"{limit}: record more, or ask it in this run, and start over", fresh=True)
    elif alone and all(_is_too_close(results, pair) for pair in pairs):
        if results.compares:
            text, other = "too close to the value to tell: if another value will do,", {"objective.value": "VALUE"}
        else:
            text, other = "if a wider interval will do,", {"objective.half_width": "WIDTH"}
        yield _step(ending, f"{text} start over with it", other, fresh=True)
    elif alone:
        yield _with_larger_max(ending, results, both)
    elif any(row.gate == UNDECIDED and row.model in models for row in results.groups):
        gates = "stopping.delta, or larger gates of the benchmarks that are undecided"
        yield _step(ending, NO_MATTER.format(gates), fresh=True)
    else:
        key, delta = _larger_delta(results, both)
        more = [] if any(_is_too_close(results, pair) for pair in both) else [_with_larger_max(ending, results, both)]
        wider = [_step(ending, NO_MATTER.format(key), {key: delta}, fresh=True)]
        steps = [*more, *wider] if delta == UNKNOWN_DELTA else [*wider, *more]
        or_else = NeedKind.TRIALS in ending.needs
        yield from (replace(step, text=f"or {step.text}") if at or or_else else step for at, step in enumerate(steps))


def _with_larger_max(ending: Ending, results: Results, pairs: Sequence[PairRow]) -> Advice:
    """A new run with more trials than the present differences need."""
    needed = max(pair.trials_needed or 0.0 for pair in pairs)
    larger = math.ceil(round_up(RESERVE * max(results.setting("trials", "max"), needed)))
    caps = _covering_caps(ending, results, larger, pairs)  # it repeats what this run has asked
    text = f"start over with a larger {' and '.join([*caps, 'trials.max'])}"
    return _step(ending, text, caps | {"trials.max": larger}, fresh=True)


def _larger_delta(results: Results, pairs: Sequence[PairRow]) -> tuple[str, float | str]:
    """The key and value within which differences like these are ties: a number, if a plausible one is known."""
    key = "objective.delta" if results.frontier else "stopping.delta"
    rule = deciding_rule(results.decisions)
    lead = -1.0 if rule is not None and rule.lenient else 1.0  # a lead helps it to call, and hinders a tie
    widths = [None if results.frontier or results.gate else _certified_width(pair, lead) for pair in pairs]
    known = None if None in widths else round_up(max(filter(None, widths), default=0.0))
    largest = MAX_DELTA * (max(results.weights) - min(results.weights))
    is_larger = known is not None and (results.setting("stopping", "delta") or 0.0) < known <= largest
    return key, known if is_larger and known is not None else UNKNOWN_DELTA


def _is_too_close(results: Results, pair: PairRow) -> bool:
    """Whether no plausible number of trials would decide a pair in a new run."""
    largest, needed = results.setting("trials", "max") or 0, pair.trials_needed
    if needed is None:  # no difference at all, or no error left for it
        return pair.boundary is not None or not results.compares
    return RESERVE * needed > max(MAX_TIMES * largest, MAX_TRIALS)


def _certified_width(pair: PairRow, lead: float) -> float | None:
    """The `delta` within which a new run of this size would probably find the pair equal, or under a lenient rule none
    behind; `lead`: 1 where the difference stands in the way of that, -1 where it helps."""
    if pair.certifiable_delta is None or pair.difference is None:
        return None
    return lead * abs(pair.difference) + DELTA_RESERVE * pair.certifiable_delta


STEPS: Mapping[NeedKind, Callable[[Ending], Iterator[Advice]]] = {
    NeedKind.USABLE_ANSWERS: _after_alarm,
    NeedKind.COMPLETE_ANSWERS: _complete_answers,
    NeedKind.COMPLETE_PRIOR: lambda at: iter(
        [_step(at, "name another prior run, or none, and start over", fresh=True)]
    ),
    NeedKind.ANSWERS: _retry_answers,
    NeedKind.INDEPENDENT_ANSWERS: _independent_answers,
    NeedKind.GRADES: _grade_again,
    NeedKind.MODEL: _restore_models,
    NeedKind.LABELS: _label_more,
    NeedKind.BETTER_GRADES: _correct_grader,
    NeedKind.TRIALS: _raise_limits,
    NeedKind.NEW_RUN: _start_over,
}
"""What to do about each need."""


# -- larger limits ----------------------------------------------------------------------------------------------------


def _larger_limits(ending: Ending) -> dict[str, float]:
    """The caps that have ended the run, or can have, twice as large, and all as large as the pairs need that trials can
    decide, with a reserve; if that is more than `trials.max`, or no cap is too small, a larger `trials.max` as well."""
    results = ending.results
    is_unpaid = any(lost.cause is Cause.BUDGET for lost in ending.lost.values())
    caps = {} if ending.reason is Reason.OUT_OF_REACH and not is_unpaid else _doubled_caps(ending)
    if results is None:
        return caps
    largest, pairs = results.setting("trials", "max"), _pairs_that_need(ending, NeedKind.TRIALS)
    needed = max((pair.trials_needed or 0.0 for pair in pairs), default=0.0)
    deciding = max((pair.deciding_max or 0.0 for pair in pairs), default=0.0)
    within = _larger_of(caps, _covering_caps(ending, results, min(RESERVE * needed, largest), pairs))
    if within and deciding <= largest:
        return within
    larger = math.ceil(round_up(deciding if deciding > largest else RESERVE * max(largest, needed)))
    return _larger_of(caps, _covering_caps(ending, results, larger, pairs)) | {"trials.max": larger}


def _larger_of(caps: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {key: max(caps.get(key, 0.0), others.get(key, 0.0)) for key in {**caps, **others}}


def _doubled_caps(ending: Ending) -> dict[str, float]:
    of_reason = {Reason.WALL_TIME: ["wall_time"], Reason.GPU_TIME: ["gpu_hours"]}.get(ending.reason or Reason.BUDGET)
    keys = of_reason or list(ending.short_caps) or [key for key in ending.caps if key != "wall_time"]
    larger = {key: max(2 * ending.caps.get(key, 0.0), ending.short_caps.get(key, 0.0)) for key in keys}
    restart = ending.restart
    if ending.reason is Reason.WALL_TIME:
        larger["wall_time"] += restart.seconds
    elif ending.reason is Reason.GPU_TIME:  # beyond what is used, and kept back for the end of servers
        cap = ending.caps.get("gpu_hours", 0.0)
        larger["gpu_hours"] = cap + max(cap, restart.ending_gpu_seconds / 3600) + restart.gpu_seconds / 3600
    return {f"budget.{key}": _rounded_cap(key, cap) for key, cap in larger.items() if cap}


def _rounded_cap(key: str, cap: float) -> float:
    return float(math.ceil(round(cap, 6))) if key == "wall_time" else round_up(cap)


def _covering_caps(ending: Ending, results: Results, trials: float, pairs: Sequence[PairRow]) -> dict[str, float]:
    """The caps that the cost of so many trials per question of these pairs' models would exceed, as large as that."""
    cost, times = results.cost, _further_answers(results, trials, pairs)[0] / max(results.cost.trials, 1)
    used = {key: cost.in_all(key) + times * getattr(cost, key) for key in ("trials", "tokens", "usd")}
    restart = ending.restart
    servers = restart.gpu_seconds + 2 * restart.ending_gpu_seconds  # the end of this start, and of the next one
    used["gpu_hours"] = ((1.0 + times) * (cost.counted_gpu_seconds or cost.in_all("gpu_seconds")) + servers) / 3600
    used["wall_time"] = (1.0 + times) * results.run.active_seconds + restart.seconds
    return {
        f"budget.{key}": _rounded_cap(key, used[key]) for key, cap in ending.caps.items() if used.get(key, 0.0) > cap
    }


def _further_answers(results: Results, trials: float, pairs: Sequence[PairRow]) -> tuple[int, list[str]]:
    """Answers of these pairs' models until each has so many trials per question, and these models."""
    undecided = {name for pair in pairs for name in (pair.first, pair.second)}
    per_model = results.max_trials_per_model * trials / results.setting("trials", "max")
    asked = [row for row in results.models if row.name in undecided and row.recorded is None]
    return math.ceil(sum(max(per_model - row.stored_trials, 0.0) for row in asked)), [row.name for row in asked]


def _pairs_that_need(ending: Ending, kind: NeedKind) -> list[PairRow]:
    return [pair for pair, need in ending.undecided if need.kind is kind]
