"""Alarms about answers in words, and incomplete answers, for the headline of every display."""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.base.lists import first_few
from adaptive_eval.core.answer_alarms import AnswerAlarm
from adaptive_eval.core.types import Reason
from adaptive_eval.machine.usage import AnswerFault
from adaptive_eval.notes import Event, alarms_of_events
from adaptive_eval.report.lines import safe_name, several
from adaptive_eval.report.needs import (
    LONGEST_NAME,
    MAX_NAMES,
    NeedKind,
    models_with,
    needs_of,
    some_models,
    void_models,
)
from adaptive_eval.report.results import AlarmRow, Results
from adaptive_eval.report.warnings import REPEATS_UNCLEAR, is_alarmed

OF_COMPLETE = (NeedKind.COMPLETE_ANSWERS, NeedKind.COMPLETE_PRIOR)


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
    """Describe alarms, and comparisons that incomplete answers could decide; nothing if all is well."""
    yield from _unread_answers(results)
    begin = "Stopped by an alarm" if results.run.reason == Reason.ALARM else "Alarm"
    for is_change, what in (True, "a server has changed; "), (False, ""):
        rows = [row for row in results.alarms if (row.since is not None) == is_change]
        if rows:
            examples = [f"{safe_name(row.model, LONGEST_NAME)}: {row.text}" for row in rows]
            yield f"{begin}: {what}{first_few(examples, MAX_NAMES)}."
    if repeated := models_with(results, AnswerFault.REPEATED):
        come_back = f"answers of {some_models(repeated)} come back word for word"
        yield f"Alarm: {come_back}; do not rely on comparisons with such a model."
    if undecided := [need for _, need in needs_of(results) if need.kind in OF_COMPLETE]:
        names = some_models(dict.fromkeys(name for need in undecided for name in need.models))
        yield f"{several(len(undecided), 'comparison')} could turn on incomplete answers of {names}."


def alarmed_models(results: Results, events: Sequence[Event]) -> Mapping[str, str]:
    """Models whose answers decide nothing in their run, each with its alarm; where `on_alarm: never` lets all answers
    count, those with too many incomplete ones."""
    all_count = results.setting("stopping", "on_alarm") == "never"
    ended = alarms_of_events(events) if is_alarmed(results.decisions, results.warnings) else {}
    about = {row.model: row.text for row in results.alarms if row.is_incomplete or not all_count}
    return {model: alarm.text for model, alarm in ended.items()} | {**void_models(results)} | about


def alarms_by_model(results: Results) -> Mapping[str, str]:
    """Models with an alarm about their answers, whether these count or not, or with answers that may repeat, each with
    the alarm or warning."""
    faults, warnings = {*AnswerFault, REPEATS_UNCLEAR}, results.warnings
    about_all = {row.model: row.text for row in warnings if row.model is not None and row.kind in faults}
    return about_all | {row.model: row.text for row in results.alarms}


def _unread_answers(results: Results) -> Iterator[str]:
    """Say so if the grader found no answer of models with an alarm about incomplete answers."""
    incomplete = {row.model for row in results.alarms if row.since is None and row.is_incomplete}
    unread = models_with(results, AnswerFault.UNREAD)
    if rows := [row for row in results.models if row.name in incomplete and row.name in unread]:
        responses = f"{sum(row.trials for row in rows):,} responses of {some_models(row.name for row in rows)}"
        yield f"The grader found no answer in any of the {responses}: fix it before you start over."
