"""The results of a replay, in the format of a run's."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from adaptive_eval.replay.perform import Performed
from adaptive_eval.replay.prepare import Prepared
from adaptive_eval.replay.source import Source
from adaptive_eval.replay.timed import Timeline
from adaptive_eval.results import Results, Subject, build_results, take_snapshot
from adaptive_eval.results.types import Caution, TurnsRow
from adaptive_eval.scheduler.tallies import Tally


def results_of(prepared: Prepared, performed: Performed, now: float) -> Results | None:
    """What the replay found, at `now` in seconds since 1970; None when it ended before its first look.

    Its active seconds are those of the simulated servers, 0 without them.
    """
    source, controller, timeline = prepared.source, performed.controller, performed.timeline
    subject = Subject(
        name=source.name,
        models=source.models,
        questions=source.questions,
        sampled=(False,) * len(source.models),  # no text was: nothing is to be warned of when answers repeat
        created=now,
        decisions=prepared.decisions.stated(),
    )
    tallies = [Tally(trials=trials) for trials in controller.arrived.sum(axis=(1, 2)).tolist()]
    elapsed = 0.0 if timeline is None else timeline.seconds
    snapshot = take_snapshot(subject, controller, tallies, elapsed=elapsed, now=now, stopped=False)
    if snapshot is None:
        return None
    results = build_results(snapshot)
    warnings = (*results.warnings, *_beyond_the_record(source, performed))
    return replace(results, warnings=warnings, turns=_turns(timeline))


def _turns(timeline: Timeline | None) -> tuple[TurnsRow, ...]:
    """What it took to serve all models on one server."""
    if timeline is None or not timeline.swaps:
        return ()
    seconds = sum(swap.seconds for swap in timeline.swaps)
    models = len({swap.model for swap in timeline.swaps})
    return (TurnsRow("one server", models, len(timeline.swaps), seconds),)


def _beyond_the_record(source: Source, performed: Performed) -> Iterator[Caution]:
    """Trials that nobody has recorded make a replay surer of itself than the recording is."""
    if source.recorded is None:
        return
    trials = performed.controller.arrived.sum(axis=-1)
    beyond = int(np.maximum(trials - source.recorded, 0).sum())
    if beyond:
        text = (
            f"{beyond:,} of {int(trials.sum()):,} trials go beyond what was recorded ({source.recorded.min()} to "
            f"{source.recorded.max()} a question) and were drawn from the recorded shares, as if those were the truth; "
            "a smaller trials.max keeps a replay within its record"
        )
        yield Caution("beyond_record", None, text)
