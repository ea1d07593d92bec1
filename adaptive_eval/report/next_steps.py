"""Next steps after a run, with their commands."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from types import MappingProxyType

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.load import CONFIGURATIONS
from adaptive_eval.core import Reason, Verdict
from adaptive_eval.report.alarms import (
    TRUNCATED,
    WHOLE_PRIOR,
    cut_in_prior,
    has_cut_answers,
    limit_to_raise,
    unread_answers,
)
from adaptive_eval.report.ending import EXIT_CODES, UNDECIDED_REASONS, Ending
from adaptive_eval.report.labelled import MIN_LABELS
from adaptive_eval.report.lines import safe_name, several
from adaptive_eval.report.results import Results
from adaptive_eval.report.undecided import (
    UNDECIDED,
    MoreAnswers,
    has_spent_error,
    labels_needed,
    lacks_labels,
    more_answers,
    round_up,
)
from adaptive_eval.report.words import draws_questions

LONGEST_NAME = 32
ENOUGH = "for a 50% chance of a decision"
AFRESH = "another --run-dir, or --fresh without --run-dir"
AGAIN = "run the same command again"
COUNT_CUT = "to count cut answers as graded, give them a category (rubric, when: {truncated: true}), then:"
COUNT_EMPTY = "to count such answers as wrong, give them a category (rubric, when: {empty: true}), then:"
LABELS_FACTOR = 2
"""Times the labels that would be enough if the corrected difference stayed: labels are best given once."""
UNDECIDED_BY_LABELS = Verdict.UNDECIDED_BY_LABELS


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
    models, reason = () if ending.results is None else ending.results.models, ending.reason
    regrade = shlex.join(["adaptive-eval", "regrade", run, *_grader_arguments(ending)])
    if ending.fatal_error is not None and ending.fatal_error.exit_code is ExitCode.SPENT:  # an alarm
        yield _step(ending, "if you change the prompt, model or server, start over", fresh=True)
        yield Advice("if you change the grader or answer keys:", regrade)
    elif ending.fatal_error is not None:
        yield _step(ending, "fix that, then")
    elif reason is Reason.ALARM or (ending.results is not None and ending.results.alarms):
        yield from _after_alarm(ending, regrade)
    elif has_cut_answers(ending.results):
        yield from _whole_answers(ending, run, regrade)
    elif ending.ungraded and reason is not Reason.SETTLED and (lacking := _models_lacking_answers(ending.results)):
        flag = "--ask-again" if any(lacking.values()) else None
        yield _step(ending, "fix the servers or commands that fail on some questions every time, then", flag=flag)
        again = "this retries models that were set aside; for others, and if you edit a command's files, start over"
        yield _step(ending, again, fresh=True)
    elif ending.ungraded and (not models or any(row.ungraded > row.signals.get("unanswered", 0) for row in models)):
        slow = "if the grader ran out of time or its server failed, raise grading.timeout or fix that server, then"
        yield _step(ending, slow)
        again = "this grades the stored answers again; after a change of the grader, or to do only this:"
        yield Advice(again, regrade)
    elif ExitCode.SPENT in (ending.exit_code, EXIT_CODES[reason] if reason else None) and not ending.decided_by_labels:
        doubted, labels = list(_doubtful_answers(ending, run)), list(_more_labels(ending, run))
        yield from (*doubted, *labels)
        if reason is not Reason.SETTLED and not (labels and _lacks_labels_alone(ending.results)):
            yield from _for_more(ending)
        elif not (doubted or labels):
            none = "every comparison is decided, and further trials do not change that: for more precision, start over"
            yield _step(ending, none, fresh=True)
    elif reason is Reason.SETTLED or ending.decided_by_labels:
        if ending.results is None or not ending.results.corrected:
            yield Advice("check the grader on some answers:", f"adaptive-eval label {run}")
    elif reason is Reason.BLOCKED:
        yield _step(ending, "start or fix the servers, then" if ending.lost_servers else "fix what is missing, then")
    elif ending.imported and ending.lacks_questions:
        yield Advice(
            "to request more trials, import the logs again with a configuration that has the questions (--config)"
        )
    elif ending.imported and ending.arguments is None:
        file = f"{run}/config.yaml"
        yield Advice(f"fill in the addresses in {file}, then:", f"adaptive-eval run {file} --run-dir {run}")
    else:
        yield Advice(AGAIN) if ending.arguments is None else _step(ending, "to continue")


def _models_lacking_answers(results: Results | None) -> dict[str, bool]:
    """Models of which an undecided comparison lacks answers to requests that fail every time, and whether another
    comparison of the model is decided."""
    decided = {Verdict.RESOLVED, Verdict.TIED, UNDECIDED_BY_LABELS}
    pairs_of: dict[str | None, list[bool]] = {}
    for pair in () if results is None else results.pairs:
        for name in (pair.first, pair.second):
            pairs_of.setdefault(name, []).append(pair.verdict in decided)
    rows = () if results is None else results.models
    models = (row.name for row in rows if row.signals.get("unanswered"))
    return {name: any(pairs_of.get(name, ())) for name in models if not all(pairs_of.get(name, (False,)))}


def _after_alarm(ending: Ending, regrade: str) -> Iterator[Advice]:
    """Next steps after an alarm: a server has changed, or too many answers were cut off or are empty."""
    results = ending.results
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


def _whole_answers(ending: Ending, run: str, regrade: str) -> Iterator[Advice]:
    """Next steps if a few cut answers keep a comparison from being decided; others may be undecided."""
    further = {Verdict.OPEN, Verdict.OUT_OF_REACH}
    pairs = () if ending.results is None else ending.results.pairs
    own = any(row.cut for row in (() if ending.results is None else ending.results.models))
    if own:  # else those of the prior alone are meant
        yield Advice(COUNT_CUT, regrade)
    yield from _more_labels(ending, run)
    if ending.reason in UNDECIDED_REASONS and any(pair.verdict in further for pair in pairs):
        yield from _for_more(ending)
    if own:
        raised = f"or raise {limit_to_raise(ending.results)}, since cut answers decide nothing, and start over"
        yield _step(ending, raised, _raised_limit(ending), fresh=True)
    if ending.results is not None and cut_in_prior(ending.results):
        yield _step(ending, f"{'or ' * own}name {WHOLE_PRIOR}, or none, and start over", fresh=True)


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
    old = {at for at, pair in enumerate(pairwise(["", *words])) if _set_by(*pair) in changed}
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


def _grader_arguments(ending: Ending) -> list[str]:
    """Arguments of `adaptive-eval regrade` for the configuration that the run was started with."""
    config, *others = ending.arguments or ["CONFIG"]
    sets = [
        "grader=GRADER" if word.startswith("grader=") else word
        for at, word in enumerate(others)
        if "--set" in others[max(at - 1, 0) : at + 1]
    ]
    is_file = PurePath(config).suffix in CONFIGURATIONS and "--model" not in others  # else of questions
    return ["--config", *([config, *sets] if is_file else ["CONFIG"])]


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


def _more_labels(ending: Ending, run: str) -> Iterator[Advice]:
    """How to decide what labels leave undecided."""
    results = ending.results
    undecided = [] if results is None else [pair for pair in results.pairs if lacks_labels(results, pair)]
    if results is None or not undecided:
        return
    needs = [labels_needed(results, pair) for pair in undecided]
    solvable = [need.further for need in needs if need.further is not None]
    if not solvable:
        what = "the corrected scores are too close for the answers of this run: more labels would hardly decide it"
        yield Advice(f"{what}. If you give more:", f"adaptive-eval label {run}")
        return
    unsolvable = (
        "" if len(solvable) == len(needs) else "; the other comparisons would need more labels than there are answers"
    )
    number = int(round_up(max(LABELS_FACTOR * max(solvable), MIN_LABELS)))
    reserve = "with a reserve for the pair that needs most"
    text = f"label about {number:,} more answers, {reserve}{unsolvable}:"
    yield Advice(text, f"adaptive-eval label {run} --number {number}")


def _lacks_labels_alone(results: Results | None) -> bool:
    """Whether labels are all that undecided comparisons lack."""
    return results is not None and all(
        lacks_labels(results, pair) for pair in results.pairs if pair.verdict in UNDECIDED
    )


def _for_more(ending: Ending) -> Iterator[Advice]:
    """How to decide what the budget or the horizon has left open; a recording is made before it is used."""
    need = None
    if ending.results is not None and ending.reason in (Reason.BUDGET, Reason.OUT_OF_REACH):
        need = more_answers(ending.results, ending.reason, ending.short_caps)
    if need is not None and need.recording is not None:
        number, name = f"{need.recording.trials:,}", safe_name(need.recording.model, LONGEST_NAME)
        yield Advice(
            f"record {name} again with more answers: trials.min and trials.max about {number} (now "
            f"{need.recording.recorded_trials:,.0f}), and name that run in `recorded`"
        )
    yield _answers_for_more(ending, need)


def _answers_for_more(ending: Ending, need: MoreAnswers | None) -> Advice:
    """The step of `_for_more` with a command."""
    covering = {f"budget.{key}": value for key, value in ending.short_caps.items()}
    results = ending.results
    larger = covering or _doubled_budget(ending)
    which_round = f" or more, for the {'next' if results else 'first'} round" if covering else ""
    raised = f"{_list_settings(larger)}{which_round}" if larger else "the budget, then"
    more_budget = _step(ending, f"raise {raised}", larger)
    if results is None:
        return more_budget
    if draws_questions(results.decisions) and ending.reason is Reason.OUT_OF_REACH:
        return Advice("start a new run with more questions, or with several trials of each (without trials.draw)")
    if ending.reason not in (Reason.BUDGET, Reason.OUT_OF_REACH):
        return more_budget
    settings = {} if need is None else need.settings
    if ending.reason is Reason.BUDGET:
        return _step(ending, f"raise {_list_settings(settings)}", settings) if settings else more_budget
    if need is None:
        return _larger_delta(ending, results)
    if need.fresh:
        anew = "start over"
        if all(has_spent_error(results, pair) for pair in need.pairs):
            anew = "start over, since a larger trials.max would decide nothing more in this run"
        if need.recording is not None:
            anew = "then start over with that recording"
        raised = f"; set {_list_settings(settings)}" if settings else ""
        return _step(ending, f"{anew}{raised}", settings, fresh=True)
    why = f"{several(need.hopeless, 'comparison')} would stay undecided" if need.hopeless else ENOUGH
    return _step(ending, f"raise {_list_settings(settings)} ({why})", settings)


def _larger_delta(ending: Ending, results: Results) -> Advice:
    """How to get a verdict on pairs that no plausible number of answers would decide: count them as ties, or pass."""
    pairs = [pair for pair in results.pairs if pair.verdict == Verdict.OUT_OF_REACH]
    which = "this comparison" if len(pairs) == 1 else f"the {len(pairs)} undecided comparisons"
    key = "objective.delta" if results.frontier else "stopping.delta"
    widths = [None if results.frontier or results.gate else pair.certifiable_delta for pair in pairs]
    delta = None if None in widths else round_up(max(filter(None, widths), default=0.0))
    size = f"a {key} of {delta:.15g}" if delta else f"a larger {key}, as DELTA"
    why = f"deciding {which} would take far more answers than this run; if the difference does not matter to you"
    return _step(ending, f"{why}, start over with {size}", {key: delta or "DELTA"}, fresh=True)


def _doubled_budget(ending: Ending) -> dict[str, float | str]:
    """Twice the caps of the run that can have ended it."""
    is_time = ending.reason is Reason.WALL_TIME
    caps = {key: cap for key, cap in ending.caps.items() if (key == "wall_time") is is_time}
    if ending.reason is Reason.GPU_TIME:
        caps = {key: cap for key, cap in caps.items() if key == "gpu_hours"}
    return {f"budget.{key}": f"{2 * cap:.15g}s" if key == "wall_time" else 2 * cap for key, cap in caps.items()}


def _list_settings(settings: Mapping[str, float | str]) -> str:
    texts = {key: value if isinstance(value, str) else f"{value:,.15g}" for key, value in settings.items()}
    return " and ".join(f"{key} to {text}" for key, text in texts.items())
