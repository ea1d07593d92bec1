"""Which trials a start asks again of models that were set aside."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from adaptive_eval.core.rounds import enough_answers
from adaptive_eval.core.types import Cause
from adaptive_eval.store import ModelSetAside, RunReader, TrialKey, TrialPlace, events_of_kind


def trials_to_ask_again(reader: RunReader) -> Mapping[str, Sequence[TrialKey]]:
    """Trials to ask again of models that were set aside: time-outs of silent rounds, and permanent failures."""
    gone = events_of_kind(reader.events(), ModelSetAside)
    set_aside = {event.model for event in gone if event.cause is not Cause.ANSWERS}
    if not set_aside:
        return {}
    rounds: defaultdict[tuple[str, int], list[TrialPlace]] = defaultdict(list)
    for place in reader.places():
        if place.model in set_aside:
            rounds[place.model, place.round].append(place)
    again: dict[str, list[TrialKey]] = {}
    for (model, _), places in rounds.items():
        late = [place.key for place in places if place.has_flag("timed_out")]
        missing = [place.key for place in places if place.has_flag("unanswered")]
        missing += [] if enough_answers(len(late), len(places)) else late
        if missing:
            again.setdefault(model, []).extend(missing)
    return again
