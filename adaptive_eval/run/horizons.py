"""The horizons that a run had before today's, under which what was spent stays spent."""

from collections.abc import Sequence

from adaptive_eval.config.run import RunConfig
from adaptive_eval.errors import ConfigError
from adaptive_eval.planning import Horizon
from adaptive_eval.run.meaning import stored_config
from adaptive_eval.store import Event, RunReader
from adaptive_eval.store.horizons import changed_horizons


def earlier_horizons(config: RunConfig, reader: RunReader, events: Sequence[Event]) -> tuple[Horizon, ...]:
    """The horizons of a stored run before that of `config`, under which it is to go on or to be read."""
    found: list[Horizon] = []
    for change in changed_horizons(events):
        if change.looks is not None:
            found.append(Horizon(change.was, max([change.looks, *(one.looks for one in found)])))
    before, looks = stored_config(reader.header()).trials, reader.most_looks()
    if looks and before.max != config.trials.max:
        found.append(Horizon(before.max, max([looks, *(one.looks for one in found)])))
    return tuple(found)


def require_same_first_look(config: RunConfig, reader: RunReader) -> None:
    """When the first look is taken cannot depend on what it showed."""
    before = stored_config(reader.header()).trials
    if before.min != config.trials.min and reader.most_looks():
        raise ConfigError(
            f"trials.min was {before.min} when the run took its first look, and cannot become {config.trials.min} "
            f"after it; set it to {before.min} again, or begin another run with --fresh"
        )
