"""Where lost answers count among the looks of a run.

A loss is stored with the number of looks that had been taken when it was counted. A start that goes on, a reader, and
settings of an earlier stage that are played again (`record.stages`) all count it there, so that they take the looks
that were taken, and no others. What is in flight when a loss is noticed depends on what has arrived by then, which the
order of stored trials does not tell: so whether it has ended the run is stored, too.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from adaptive_eval.core.types import Loss
from adaptive_eval.store import AnswersLost, Event, SettingsChanged, TrialsRegraded
from adaptive_eval.store.spending import stored_cost


def loss_of(event: AnswersLost, model: int) -> Loss:
    """A stored loss as the core counts it; `model` is the position of its model."""
    if event.looks is None:
        return Loss(model, stored_cost(event))
    return Loss(model, stored_cost(event), event.looks, bool(event.ended), event.killed)


def with_losses_in_place(events: Sequence[Event], look_times: Mapping[int, float]) -> Iterator[Event]:
    """Stored events, with each loss as it counts today; `look_times` are those of the looks that stand.

    Grades that were changed begin a run anew: earlier losses count before its first look. A loss has not ended a run
    that has gone on since: under other settings, or with a model that was set aside before.
    """
    anew, changed = 0, 0
    for number, event in enumerate(events):
        if isinstance(event, TrialsRegraded) and event.opening is not None:
            anew = number
        elif isinstance(event, SettingsChanged):
            changed = number
    latest_look = max(look_times.values(), default=-math.inf)
    for number, event in enumerate(events):
        if not isinstance(event, AnswersLost):
            yield event
        elif number < anew:
            yield replace(event, looks=None, ended=None)
        elif event.ended and (number < changed or event.at < latest_look):
            yield replace(event, ended=None)
        else:
            yield event
