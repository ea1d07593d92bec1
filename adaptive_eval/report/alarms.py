"""Alarms about answers in words, and answers that were cut off, for the headline of every display."""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.base.lists import first_few
from adaptive_eval.core.answer_alarms import AnswerAlarm
from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.types import Reason
from adaptive_eval.machine.usage import AnswerFault
from adaptive_eval.notes import Event, alarms_of_events
from adaptive_eval.report.lines import capitalised, safe_name, several
from adaptive_eval.report.needs import (
    LONGEST_NAME,
    MAX_NAMES,
    NeedKind,
    cut_in_prior,
    needs_of,
    repeating_models,
    some_models,
    void_models,
)
from adaptive_eval.report.results import AlarmRow, ModelRow, Results
from adaptive_eval.report.warnings import REPEATS_UNCLEAR, is_alarmed

TRUNCATED = AnswerKind.TRUNCATED.signal
LIMIT = "sampling.max_tokens"
OTHER_LIMIT = "a limit of the server or the task"


def alarm_rows(alarms: Sequence[AnswerAlarm], models: Sequence[str]) -> tuple[AlarmRow, ...]:
    """The alarms of a run, the largest share first."""
    rows = (
        AlarmRow(
            model=models[alarm.model],
            kind=alarm.kind.signal,
            answers=alarm.answers,
            of=alarm.of,
            before=alarm.before,
            before_of=alarm.before_of,
            since=alarm.before_of + 1 if alarm.is_change else None,
            text=alarm.reason,
        )
        for alarm in alarms
    )
    return tuple(sorted(rows, key=lambda row: -row.answers / row.of))


def alarm_sentences(results: Results) -> Iterator[str]:
    """Describe alarms, and comparisons that cut answers could decide; nothing if all is well."""
    if (unread := unread_answers(results)) is not None:
        yield f"{capitalised(unread)}: fix it before you start over."
    begin = "Stopped by an alarm" if results.run.reason == Reason.ALARM else "Alarm"
    changed = [row for row in results.alarms if row.since is not None]
    if changed:
        examples = first_few([f"{safe_name(row.model, LONGEST_NAME)}: {row.text}" for row in changed], MAX_NAMES)
        servers = "a server has changed" if len(changed) == 1 else f"{len(changed)} servers have changed"
        yield f"{begin}: {servers}; {examples}."
    if silent := [row for row in results.alarms if row.since is None and row.kind != TRUNCATED]:
        examples = first_few([f"{safe_name(row.model, LONGEST_NAME)}: {row.text}" for row in silent], MAX_NAMES)
        yield f"{begin}: {examples}."
    if repeated := repeating_models(results):
        come_back = f"answers of {some_models(repeated)} come back word for word"
        yield f"Alarm: {come_back}; do not rely on comparisons with such a model."
    cut = {row.model: (row.answers, row.of) for row in results.alarms if _is_about_cuts(row)}
    if cut:
        yield f"{begin}: {_cut_in_words(results, cut)}; their grades decide nothing."
    elif undecided := cut_off_pairs(results):
        names = {name for pair in undecided for name in pair}
        cut = {row.name: (row.cut, row.trials) for row in results.models if row.name in names and row.cut}
        causes = [_cut_in_words(results, cut)] if cut else []
        if earlier := [name for name in cut_in_prior(results) if name in names]:
            causes.append(f"in the prior run, answers of {some_models(earlier)} were cut off")
        yield f"{several(len(undecided), 'comparison')} could turn on cut answers: {', and '.join(causes)}."


def alarmed_models(results: Results, events: Sequence[Event]) -> Mapping[str, str]:
    """Models whose answers decide nothing in their run, each with its alarm; where `on_alarm: never` lets all answers
    count, those with too many cut ones."""
    all_count = results.setting("stopping", "on_alarm") == "never"
    ended = alarms_of_events(events) if is_alarmed(results.decisions, results.warnings) else {}
    about = {row.model: row.text for row in results.alarms if row.kind == TRUNCATED or not all_count}
    return {model: alarm.text for model, alarm in ended.items()} | {**void_models(results)} | about


def alarms_by_model(results: Results) -> Mapping[str, str]:
    """Models with an alarm about their answers, whether these count or not, or with answers that may repeat, each with
    the alarm or warning."""
    faults, warnings = {*AnswerFault, REPEATS_UNCLEAR}, results.warnings
    about_all = {row.model: row.text for row in warnings if row.model is not None and row.kind in faults}
    return about_all | {row.model: row.text for row in results.alarms}


def unread_answers(results: Results | None) -> str | None:
    """Say that the grader found no answer of models with an alarm about cut answers; None if it did."""
    if results is None:
        return None
    cut = {row.model for row in results.alarms if _is_about_cuts(row)}
    unread = {warning.model for warning in results.warnings if warning.kind == AnswerFault.UNREAD}
    rows = [row for row in results.models if row.name in cut & unread]
    names = some_models(row.name for row in rows)
    responses = f"any of the {sum(row.trials for row in rows):,} responses of {names}"
    return f"the grader found no answer in {responses}" if rows else None


def _is_about_cuts(row: AlarmRow) -> bool:
    return row.since is None and row.kind == TRUNCATED


def _cut_in_words(results: Results, cut: Mapping[str, tuple[int, int]]) -> str:
    """Name the models with the largest shares of cut answers, with their limits; `cut`: such answers, and all."""
    limits = {row.name: token_limit(row) for row in results.models}
    worst = sorted(cut, key=lambda name: -cut[name][0] / cut[name][1])
    phrases = ["{:,} of {:,} answers of {}".format(*cut[name], safe_name(name, LONGEST_NAME)) for name in worst]
    distinct = {limits[name] for name in worst}
    if len(distinct) > 1:
        phrases = [f"{phrase} ({limits[name] or 'no limit set'})" for phrase, name in zip(phrases, worst, strict=True)]
    common = distinct.pop() if len(distinct) == 1 else None
    limit = LIMIT if limits[worst[0]] is not None else OTHER_LIMIT
    return (
        f"answers were cut off at {limit}{'' if common is None else f' ({common:,})'}: {first_few(phrases, MAX_NAMES)}"
    )


def token_limit(row: ModelRow) -> int | None:
    """Maximum length of an answer of a model; None if its requests set no limit."""
    for key in ("max_completion_tokens", "max_tokens"):
        if isinstance(limit := row.sampling.get(key), int):
            return limit
    return None


def limit_to_raise(results: Results | None) -> str:
    """Name of the limit that cuts answers off."""
    limits = [token_limit(row) for row in results.models if row.cut] if results is not None else []
    return "the limit of the server or the task" if limits and not any(limits) else LIMIT


def cut_off_pairs(results: Results) -> Sequence[tuple[str, str | None]]:
    """Comparisons that answers could decide that were cut off, in this run, or else in its prior."""
    needs = needs_of(results)
    return [
        (pair.first, pair.second) for pair, need in needs if need.kind in (NeedKind.WHOLE_ANSWERS, NeedKind.WHOLE_PRIOR)
    ]


def has_cut_answers(results: Results | None) -> bool:
    """Whether answers that were cut off have ended the run, or keep a comparison from being decided."""
    if results is None:
        return False
    return any(_is_about_cuts(row) for row in results.alarms) or bool(cut_off_pairs(results))
