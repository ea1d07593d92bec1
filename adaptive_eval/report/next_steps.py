"""Next steps after a run, with their commands."""

import math
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from types import MappingProxyType

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.base.lists import first_few
from adaptive_eval.config.load import CONFIGURATIONS
from adaptive_eval.core import Reason
from adaptive_eval.core.types import Cause
from adaptive_eval.report.alarms import (
    TRUNCATED,
    has_cut_answers,
    limit_to_raise,
    unread_answers,
)
from adaptive_eval.report.ending import Ending
from adaptive_eval.report.gate import ON_ALL_QUESTIONS
from adaptive_eval.report.gate import UNDECIDED as UNDECIDED_GATE
from adaptive_eval.report.lines import safe_name
from adaptive_eval.report.needs import (
    MAX_NAMES,
    OF_TRIALS,
    RESERVE,
    UNDECIDED,
    WHOLE_PRIOR,
    NeedKind,
    needs_of,
    repeating_models,
    round_up,
    some_models,
    void_models,
)
from adaptive_eval.report.results import PairRow, Results
from adaptive_eval.report.words import draws_questions

LONGEST_NAME = 32
AFRESH = "another --run-dir, or --fresh without --run-dir"
AGAIN = "run the same command again"
COUNT_CUT = "to count cut answers as graded, give them a category (rubric, when: {truncated: true}), then:"
COUNT_EMPTY = "to count such answers as wrong, give them a category (rubric, when: {empty: true}), then:"


@dataclass(frozen=True, slots=True)
class Advice:
    """A next step for the user."""

    text: str
    command: str | None = None
    """The command that does it."""


def next_steps(ending: Ending, run: str) -> Iterator[Advice]:
    """The next steps; a command names the run as `run`."""
    if ending.gated and not ending.asked:
        asked = "this start requested nothing: for a new build, start over"
        yield _step(ending, asked, fresh=True)
    results, reason = ending.results, ending.reason
    if ending.fatal_error is not None and ending.fatal_error.exit_code is ExitCode.SPENT:  # an alarm
        if results is not None and repeating_models(results):
            yield _step(ending, f"fix the server; then {DISCARD_REPEATS}", flag="--ask-again")
        yield _step(ending, "if you change the prompt, model or server, start over", fresh=True)
        yield Advice("if you change the grader or answer keys:", _regrade(ending, run))
    elif ending.fatal_error is not None:
        yield _step(ending, "fix that, then")
    elif reason is Reason.ALARM or (results is not None and results.alarms):
        yield from _after_alarm(ending, run)
    elif reason is None:
        yield _to_go_on(ending, run)
    elif kinds := _lacking(ending):
        yield from _doubtful_answers(ending, run)
        for kind in sorted(kinds, key=list(NeedKind).index):
            yield from STEPS[kind](ending, run)
    elif doubted := list(_doubtful_answers(ending, run)):
        yield from doubted
    elif ending.exit_code is ExitCode.SPENT:
        none = "every comparison is decided, and further trials do not change that: for more precision, start over"
        yield _step(ending, none, fresh=True)
    elif results is None or not results.corrected:
        yield Advice("check the grader on some answers:", f"adaptive-eval label {run}")


def _lacking(ending: Ending) -> set[NeedKind]:
    """What undecided comparisons lack, as far as this run can get it."""
    if ending.decided_by_labels:
        return set()
    if ending.exceeds_reserve and ending.reason in (Reason.BLOCKED, Reason.BUDGET, Reason.GPU_TIME):
        return {NeedKind.MODEL}  # larger limits would only pay for the excess
    kinds = set() if ending.results is None else {need.kind for _, need in needs_of(ending.results)}
    if ending.reason is Reason.BLOCKED and (NeedKind.MODEL in kinds or not kinds):
        kinds = kinds - {NeedKind.MODEL} | {CAUSES.get(lost.cause, NeedKind.MODEL) for lost in ending.lost.values()}
        kinds = kinds or {NeedKind.MODEL}
    if ending.reason is Reason.BLOCKED or kinds & {NeedKind.ANSWERS, NeedKind.GRADES}:
        return kinds - OF_TRIALS  # what is missing comes first, and more trials would lack as much
    if ending.reason in (Reason.BUDGET, Reason.WALL_TIME, Reason.GPU_TIME):
        return kinds - OF_TRIALS | ({NeedKind.TRIALS} if kinds & OF_TRIALS or not kinds else set())
    return kinds


def _to_go_on(ending: Ending, run: str) -> Advice:
    """How to go on with a run that stopped without a reason."""
    if ending.imported and ending.lacks_questions:
        return Advice(
            "to request more trials, import the logs again with a configuration that has the questions (--config)"
        )
    if ending.imported and ending.arguments is None:
        file = f"{run}/config.yaml"
        return Advice(f"fill in the addresses in {file}, then:", f"adaptive-eval run {file} --run-dir {run}")
    return Advice(AGAIN) if ending.arguments is None else _step(ending, "to continue")


def _after_alarm(ending: Ending, run: str) -> Iterator[Advice]:
    """Next steps after an alarm: a server has changed, or too many answers were cut off or are empty."""
    results, regrade = ending.results, _regrade(ending, run)
    if (unread := unread_answers(results)) is not None:
        yield Advice(f"{unread}: fix it before you start over; this grades the stored answers again:", regrade)
    alarms = () if results is None else results.alarms
    if any(row.since is not None for row in alarms):
        again = "fix the server; then discard its answers since the change, and request them again"
        yield _step(ending, again, flag="--ask-again")
        if len(results.models if results else ()) > 1:
            yield Advice("or remove the model from the configuration to continue without it")
    if any(row.since is None and row.kind != TRUNCATED for row in alarms):
        hint = "check the server's responses, max_tokens and the reasoning settings; after a change, start over"
        yield _step(ending, hint, fresh=True)
        yield Advice(f"or, {COUNT_EMPTY}", regrade)
    if results is None or has_cut_answers(results):
        raised = f"raise {limit_to_raise(results)}, since cut answers decide nothing, then start over"
        yield _step(ending, raised, _raised_limit(ending), fresh=True)
        yield Advice(f"or, {COUNT_CUT}", regrade)


def _raised_limit(ending: Ending) -> Mapping[str, str]:
    """The setting of the command that is to be changed, if it sets the limit on tokens."""
    limit = limit_to_raise(ending.results)
    typed = {_set_by(*words) for words in pairwise(ending.arguments or ())}
    return {limit: "TOKENS"} if limit in typed else {}


def hide_folders(ending: Ending) -> Ending:
    """Remove the folders of this machine from the command, for published reports."""
    shown = (f"…/{PurePath(word).name}" if PurePath(word).is_absolute() else word for word in ending.arguments or ())
    return ending if ending.arguments is None else replace(ending, arguments=tuple(shown))


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
    if ending.arguments is None and flag is not None:
        return Advice(f"{text}: {AGAIN} with {flag}")
    if ending.arguments is None:
        return Advice(f"{text} ({AFRESH})" if fresh else f"{text.removesuffix(', then')}, then {AGAIN}")
    words = list(ending.arguments)
    if fresh and "--run-dir" in words[:-1]:
        at = words.index("--run-dir") + 1
        words[at] = f"{words[at].rstrip('/')}-2"  # --fresh would choose another folder
    elif fresh:
        words.append("--fresh")
    changed = {*settings} | ({"trials.epochs"} if "trials.max" in settings else set())
    pairs = [*enumerate(pairwise(["", *words]))]
    old = {at for at, pair in pairs if _set_by(*pair) in changed}
    if fresh:  # a new run has nothing that --set KEY= could undo
        old |= {at for at, (option, word) in pairs if option == "--set" and not word.partition("=")[2].strip()}
    words = [word for at, word in enumerate(words) if not {at, at + 1} & old]
    typed = {key: value if isinstance(value, str) else f"{value:.15g}" for key, value in settings.items()}
    words += [word for key, value in typed.items() for word in ("--set", f"{key}={value}")]
    words += [] if flag is None else [flag]
    return Advice(f"{text}:", shlex.join(["adaptive-eval", "run", *words]))


def _set_by(option: str, value: str) -> str:
    """The key that an option of the command sets."""
    if option == "--budget":
        unit = value.lower().strip("0123456789._ ")
        return f"budget.{'wall_time' if unit == 'h' else unit}"
    return "trials.max" if option == "--max-trials" else value.partition("=")[0]


def _regrade(ending: Ending, run: str) -> str:
    """The command that grades the stored answers again by the configuration that the run was started with."""
    config, *others = ending.arguments or ["CONFIG"]
    sets = [
        "grader=GRADER" if word.startswith("grader=") else word
        for at, word in enumerate(others)
        if "--set" in others[max(at - 1, 0) : at + 1]
    ]
    is_file = PurePath(config).suffix in CONFIGURATIONS and "--model" not in others  # else of questions
    arguments = [config, *sets] if is_file else ["CONFIG"]
    return shlex.join(["adaptive-eval", "regrade", run, "--config", *arguments])


def _doubtful_answers(ending: Ending, run: str) -> Iterator[Advice]:
    """Failed answers that could explain a call of the gate, and what to do."""
    doubted = {name for row in ending.gate for name in row.doubted}
    for row in () if ending.results is None else ending.results.models:
        if row.name in doubted:
            failures = {"are empty": row.signals.get("empty", 0), "timed out": row.signals.get("timed_out", 0)}
            failures |= {"exceed the context": row.signals.get("context_length", 0), "have no grade": row.ungraded}
            counts = ", ".join(f"{number:,} {what}" for what, number in failures.items() if number)
            yield Advice(f"{safe_name(row.name, LONGEST_NAME)}: of {row.stored_trials:,} answers {counts}")
    if doubted:
        yield Advice("see them:", f"adaptive-eval monitor {run} --web")
        hint = "further trials do not help here: fix the server, its settings or the grader"
        yield _step(ending, f"{hint}, and start over", fresh=True)


# -- one step for each need -------------------------------------------------------------------------------------------


def _count_cut_answers(ending: Ending, run: str) -> Iterator[Advice]:
    yield Advice(COUNT_CUT, _regrade(ending, run))
    raised = f"or raise {limit_to_raise(ending.results)}, since cut answers decide nothing, and start over"
    yield _step(ending, raised, _raised_limit(ending), fresh=True)


def _another_prior(ending: Ending, run: str) -> Iterator[Advice]:
    yield _step(ending, f"name {WHOLE_PRIOR}, or none, and start over", fresh=True)


def _retry_answers(ending: Ending, run: str) -> Iterator[Advice]:
    flag = "--ask-again" if _has_decided_pairs(ending.results) else None
    yield _step(ending, "fix the servers or commands that fail on some questions every time, then", flag=flag)
    again = "this retries models that were set aside; for others, and if you edit a command's files, start over"
    yield _step(ending, again, fresh=True)


def _has_decided_pairs(results: Results | None) -> bool:
    """Whether a comparison is decided of a model that lacks answers: it is not asked again by itself."""
    if results is None:
        return False
    lacking = {row.name for row in results.models if row.signals.get("unanswered")}
    decided = (pair for pair in results.pairs if pair.verdict not in UNDECIDED)
    return any(not lacking.isdisjoint((pair.first, pair.second)) for pair in decided)


def _grade_again(ending: Ending, run: str) -> Iterator[Advice]:
    if ending.unpaid:
        larger = {f"budget.{key}": round_up(total) for key, total in ending.unpaid.items()}
        short = "the budget does not cover the verdicts on all stored answers"
        yield _step(ending, f"{short}: raise {_list_settings(larger)}", larger)
        return
    slow = "if the grader ran out of time or its server failed, raise grading.timeout or fix that server, then"
    yield _step(ending, slow)
    again = "this grades the stored answers again; after a change of the grader, or to do only this:"
    yield Advice(again, _regrade(ending, run))


def _mend(ending: Ending, run: str) -> Iterator[Advice]:
    if ending.exceeds_reserve:
        yield _step(ending, "fix the servers that do not keep to max_tokens, and start over", fresh=True)
        return
    yield _step(ending, "start or fix the servers, then" if ending.lost_servers else "fix what is missing, then")


def _label_more(ending: Ending, run: str) -> Iterator[Advice]:
    needs = [] if ending.results is None else [need for _, need in needs_of(ending.results)]
    names = dict.fromkeys(name for need in needs if need.kind is NeedKind.LABELS for name in need.models)
    which = some_models(names, LONGEST_NAME)
    yield Advice(
        f"label more answers of {which}, a NUMBER fixed beforehand:", f"adaptive-eval label {run} --number NUMBER"
    )


def _more_labelled_answers(ending: Ending, run: str) -> Iterator[Advice]:
    results = ending.results
    assert results is not None  # which have the pairs
    anew = ", and ask recorded models anew" if any(row.recorded for row in results.models) else ""
    settings = {"trials.max": RESERVE * results.setting("trials", "max")}
    text = f"no answers are left to label: start over with a larger trials.max{anew}, and label more"
    yield _step(ending, text, settings, fresh=True)


def _more_trials(ending: Ending, run: str) -> Iterator[Advice]:
    results = ending.results
    if ending.reason is not Reason.OUT_OF_REACH or results is None:
        larger = _larger_caps(ending)
        if results is not None and _exceeds_horizon(results):  # else a larger budget would find it in its way
            horizon = _larger_horizon(ending, results, NeedKind.TRIALS)
            larger |= {key: need for key, need in horizon.items() if not _is_at_least(larger.get(key), need)}
        which_round = " or more, for the first round" if ending.short_caps and results is None else ""
        raised = f"{_list_settings(larger)}{which_round}" if larger else "the budget, then"
        yield _step(ending, f"raise {raised}", larger)
    elif draws_questions(results.decisions):
        yield Advice("start a new run with more questions, or with several trials of each (without trials.draw)")
    else:
        settings = _larger_horizon(ending, results, NeedKind.TRIALS)
        yield _step(ending, f"raise {_list_settings(settings)}", settings)


def _independent_answers(ending: Ending, run: str) -> Iterator[Advice]:
    names = some_models([] if ending.results is None else void_models(ending.results), LONGEST_NAME)
    useless = f"more trials are of no use while answers of {names} come back word for word: fix that server"
    if ending.imported:
        yield _step(ending, f"{useless}, and start over", fresh=True)
    else:
        yield _step(ending, f"{useless}; then {DISCARD_REPEATS}", flag="--ask-again")
    yield _step(ending, "or, if the model is so sure of its answers, let them count", {"stopping.on_alarm": "never"})


DISCARD_REPEATS = "discard the answers that repeat, and request them again"


def _is_at_least(cap: float | str | None, need: float | str) -> bool:
    return isinstance(cap, int | float) and isinstance(need, int | float) and cap >= need


def _exceeds_horizon(results: Results) -> bool:
    """Whether some pair that trials would decide needs more than `trials.max`."""
    largest = results.setting("trials", "max")
    return any((pair.trials_needed or 0.0) > largest for pair in _pairs_that_need(results, NeedKind.TRIALS))


def _larger_horizon(ending: Ending, results: Results, kind: NeedKind) -> dict[str, float | str]:
    """A `trials.max` with a reserve for what plausible pairs need, and caps that allow it; where `trials.max` already
    does, these caps alone."""
    largest, pairs = results.setting("trials", "max"), _pairs_that_need(results, kind)
    most = max((pair.trials_needed or 0.0 for pair in pairs), default=0.0)
    names = {name for pair in pairs for name in (pair.first, pair.second)}
    asked = [row.trials for row in results.models if row.name in names and row.recorded is None]
    per_question = max(largest * min(asked, default=0) / max(results.max_trials_per_model, 1), 1.0)
    within = min(RESERVE * most, largest)
    if 0.0 < most <= largest and (caps := _covering_caps(ending, results, within / per_question, largest)):
        return caps
    larger = math.ceil(round_up(RESERVE * max(largest, most)))
    return _covering_caps(ending, results, larger / per_question, larger) | {"trials.max": larger}


def _covering_caps(ending: Ending, results: Results, times: float, horizon: float) -> dict[str, float | str]:
    """Caps that so many times the present use would exceed, as large as that use, but no more trials than `horizon`
    allows. Time cannot be known beforehand."""
    cost = results.cost
    used = {key: times * cost.in_all(key) for key in ("trials", "tokens", "usd")}
    asked = sum(row.recorded is None for row in results.models)
    used["trials"] = min(
        used["trials"], asked * results.max_trials_per_model * horizon / results.setting("trials", "max")
    )
    used["gpu_hours"] = times * (cost.counted_gpu_seconds or cost.in_all("gpu_seconds")) / 3600
    return {f"budget.{key}": round_up(used[key]) for key, cap in ending.caps.items() if used.get(key, 0.0) > cap}


def _start_over(ending: Ending, run: str) -> Iterator[Advice]:
    results = ending.results
    assert results is not None  # which have the pairs
    settings = _larger_horizon(ending, results, NeedKind.NEW_RUN)
    why = "start over, since a larger trials.max would decide nothing more in this run"
    yield _step(ending, f"{why}; set {_list_settings(settings)}", settings, fresh=True)


def _larger_delta(ending: Ending, run: str) -> Iterator[Advice]:
    """How to get a verdict on pairs that are too close: count them as ties, or pass."""
    results = ending.results
    assert results is not None  # which have the pairs
    pairs = _pairs_that_need(results, NeedKind.TOO_CLOSE)
    which = "this comparison" if len(pairs) == 1 else f"the {len(pairs)} comparisons that are too close"
    models = {name for pair in pairs for name in (pair.first, pair.second)}
    if recorded := [row.name for row in results.models if row.recorded and row.name in models]:
        limit = f"the recorded answers of {some_models(recorded, LONGEST_NAME)} may be too few to decide {which}"
        yield _step(ending, f"{limit}: record more, or ask it in this run, and start over", fresh=True)
        return
    why = f"deciding {which} would take far more answers than this run; if the difference does not matter to you"
    benchmarks = _undecided_gates(results, models)
    gates = f"larger gates of the benchmarks {first_few(benchmarks, MAX_NAMES)}" if benchmarks else ""
    if len(benchmarks) == 1:
        gates = f"a larger gate of the benchmark {benchmarks[0]}"
    if gates and not any(ON_ALL_QUESTIONS in row.why for row in results.gate if row.model in models):
        yield _step(ending, f"{why}, start over with {gates}", fresh=True)
        return
    key = "objective.delta" if results.frontier else "stopping.delta"
    widths = [None if results.frontier or results.gate else pair.certifiable_delta for pair in pairs]
    delta = None if None in widths else round_up(max(filter(None, widths), default=0.0))
    if delta is not None and delta <= (results.setting("stopping", "delta") or 0.0):
        delta = None  # it was not enough
    size = f"a {key} of {delta:.15g}" if delta else f"a larger {key} (for DELTA)"
    size += f", and with {gates}" if gates else ""
    yield _step(ending, f"{why}, start over with {size}", {key: delta or "DELTA"}, fresh=True)


def _undecided_gates(results: Results, models: Collection[str | None]) -> list[str]:
    """Benchmarks whose own gates leave these models undecided."""
    rows = (row for row in results.groups if row.gate == UNDECIDED_GATE and row.model in models)
    return list(dict.fromkeys(safe_name(row.group, LONGEST_NAME) for row in rows))


def _pairs_that_need(results: Results | None, kind: NeedKind) -> list[PairRow]:
    return [] if results is None else [pair for pair, need in needs_of(results) if need.kind is kind]


def _larger_caps(ending: Ending) -> dict[str, float | str]:
    """Twice the caps that have ended the run, or can have; before the first look what the first round needs."""
    if ending.short_caps and ending.results is None:
        return {f"budget.{key}": need for key, need in ending.short_caps.items()}
    of_reason = {Reason.WALL_TIME: ["wall_time"], Reason.GPU_TIME: ["gpu_hours"]}.get(ending.reason or Reason.BUDGET)
    keys = of_reason or list(ending.short_caps or ending.unpaid) or [key for key in ending.caps if key != "wall_time"]
    larger = {key: max(2 * ending.caps.get(key, 0.0), ending.short_caps.get(key, 0.0)) for key in keys}
    return {
        f"budget.{key}": f"{cap:.15g}s" if key == "wall_time" else round_up(cap) for key, cap in larger.items() if cap
    }


def _list_settings(settings: Mapping[str, float | str]) -> str:
    texts = {key: value if isinstance(value, str) else f"{value:,.15g}" for key, value in settings.items()}
    return " and ".join(f"{key} to {text}" for key, text in texts.items())


STEPS: Mapping[NeedKind, Callable[[Ending, str], Iterator[Advice]]] = {
    NeedKind.USABLE_ANSWERS: _after_alarm,
    NeedKind.WHOLE_ANSWERS: _count_cut_answers,
    NeedKind.WHOLE_PRIOR: _another_prior,
    NeedKind.ANSWERS: _retry_answers,
    NeedKind.INDEPENDENT_ANSWERS: _independent_answers,
    NeedKind.GRADES: _grade_again,
    NeedKind.MODEL: _mend,
    NeedKind.LABELS: _label_more,
    NeedKind.LABELLED_ANSWERS: _more_labelled_answers,
    NeedKind.TRIALS: _more_trials,
    NeedKind.NEW_RUN: _start_over,
    NeedKind.TOO_CLOSE: _larger_delta,
}
"""What to do about each need."""
CAUSES = {Cause.SERVER: NeedKind.MODEL, Cause.GRADER: NeedKind.GRADES}
"""What a model lacks that was set aside."""
