"""What was no answer of a model that was set aside: a new start of the run asks for it again.

The core sets a model aside when too few requests of a round were really answered (`core.rounds`), or when too many have
no grade (`core.ungraded`), such as those that its server always fails. That is decided on what is stored, and stays so
for whoever reads the run; who starts it again has mended something, or hopes that it is.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence

from adaptive_eval.core.rounds import enough_answers
from adaptive_eval.store import (
    Event,
    ModelSetAside,
    RunReader,
    ServersNoticed,
    Store,
    TrialKey,
    TrialPlace,
    events_of_kind,
)


def forget_time_outs(store: Store, models: Container[str], happened: Callable[[Event], None]) -> None:
    """Ask again what timed out of a model that was set aside for it: its server may have been mended."""
    for name, trials in to_be_asked_again(store.reader).items():
        if name in models:
            text = f"{len(trials)} of its requests had no answer when it was set aside, and were asked again"
            store.forget_trials(name, trials, event := ServersNoticed(name, "asked_again", text))
            happened(event)


def to_be_asked_again(reader: RunReader) -> Mapping[str, Sequence[TrialKey]]:
    """Of each model that has been set aside: the time-outs of rounds that were too silent, and what failed always."""
    set_aside = {event.model for event in events_of_kind(reader.events(), ModelSetAside)}
    if not set_aside:
        return {}
    rounds: defaultdict[tuple[str, int], list[TrialPlace]] = defaultdict(list)
    for place in reader.places():
        if place.model in set_aside:
            rounds[place.model, place.round].append(place)
    again: dict[str, list[TrialKey]] = {}
    for (model, _), places in rounds.items():
        late = [place.key for place in places if place.timed_out]
        missing = [place.key for place in places if place.unanswered]
        missing += [] if enough_answers(len(late), len(places)) else late
        if missing:
            again.setdefault(model, []).extend(missing)
    return again
