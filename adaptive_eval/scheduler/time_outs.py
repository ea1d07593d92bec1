"""Time-outs that were no answers: what a new start of the run asks for again.

The core sets a model aside when too few requests of a round were really answered (`core.rounds`). That is decided on
what is stored, and stays so for whoever reads the run; who starts it again has mended something, or hopes that it is.
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
            text = f"{len(trials)} of its requests had run out of time, when it was set aside, and were asked again"
            store.forget_trials(name, trials, event := ServersNoticed(name, "asked_again", text))
            happened(event)


def to_be_asked_again(reader: RunReader) -> Mapping[str, Sequence[TrialKey]]:
    """The time-outs of rounds that were too silent, of each model that has been set aside."""
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
        if not enough_answers(len(late), len(places)):
            again.setdefault(model, []).extend(late)
    return again
