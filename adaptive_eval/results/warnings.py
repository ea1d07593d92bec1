"""What a reader should know before believing a ranking; each warning says what it may have done to the scores."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import cast

from adaptive_eval.core.rules import Intervals, Rule, ZScore
from adaptive_eval.results.time_outs import Bounds
from adaptive_eval.results.types import Caution
from adaptive_eval.scheduler.tallies import Tally
from adaptive_eval.store import Event, EventKind

REPEATS = (3, 0.01)
"""So many repeated answers, and such a share of all, are no coincidence."""
SHARE_WORTH_SAYING = 0.02
"""Truncated, empty and refused answers are reported from this share on."""

_MEANING = {
    "truncated": "ended at max_tokens and were graded as they stand; raise max_tokens if they were cut off",
    "empty": "are empty",
    "refusal": "are refusals",
    "content_filter": "were withheld by a content filter",
    "context_length": "were not given because prompt and max_tokens exceed the context",
}


def rule_caution(rule: Rule) -> Iterator[Caution]:
    """What repeated looks do to a rule that was made for one."""
    if isinstance(rule, ZScore | Intervals):
        yield Caution(
            "peeking",
            None,
            "the rule is made for one look and was checked at every one: on 30 questions with looks up to 80 trials, "
            "z > 1.645 names a winner between exactly equal models in a quarter to a half of all runs, not in a "
            "tenth; rule: sequential keeps its promise at any number of looks",
        )


def prior_caution(names: Sequence[str], depths: Sequence[float]) -> Iterator[Caution]:
    """Whose scores are made of an earlier run's outcomes too, and how many: D."""
    if any(depths):
        told = ", ".join(f"{name} {depth:.3g}" for name, depth in zip(names, depths, strict=True))
        yield Caution(
            "prior",
            None,
            "outcomes of an earlier run count as trials of this one (R0), so many a question (D, at most the trials of "
            f"the first look): {told}; where a model has changed since, they pull its score to what it was",
        )


def notice_cautions(events: Iterable[Event]) -> Iterator[Caution]:
    """What the servers do that nobody asked them for, each once, however often the run was started."""
    notices = (event.body for event in events if event.kind is EventKind.NOTICED)
    said = {(str(body["notice"]), str(body["model"]), str(body["text"])): None for body in notices}
    return starmap(Caution, said)


def import_cautions(events: Iterable[Event]) -> Iterator[Caution]:
    """Trials that logs should have had: what is there may be what came quickly, and that is oftener right."""
    bodies = [event.body for event in events if event.kind is EventKind.IMPORTED]
    for body in bodies:
        for model, reasons in cast(Mapping[str, Mapping[str, int]], body["missing"]).items():
            worst = max(reasons, key=lambda why: reasons[why])
            text = (
                f"{sum(reasons.values())} records of its logs are no trials ({worst}); if those failed that take "
                "longest, its score is that of its quick answers, which are more often right"
            )
            yield Caution("missing", model, text)


def reversal_cautions(pairs: Sequence[tuple[str, str | None]]) -> Iterator[Caution]:
    """Calls stand, but a reader should know where the scores have turned since."""
    for better, worse in pairs:
        yield Caution("reversal", better, f"is ahead of {worse or 'the reference'}, which was called better before")


def cautions(
    names: Sequence[str],
    tallies: Sequence[Tally],
    sampled: Sequence[bool],
    bounds: Sequence[Bounds | None],
) -> Iterator[Caution]:
    """Everything worth a warning, model by model.

    `sampled` says whose temperature is not 0; `bounds` what the scores would be without time-outs.
    """
    for model, (name, tally) in enumerate(zip(names, tallies, strict=True)):
        if sampled[model] and tally.repeats >= max(REPEATS[0], REPEATS[1] * tally.trials):
            text = (
                f"{tally.repeats} of {tally.trials} answers equal an earlier one to the same question word for word: "
                "its server ignores the seed or serves a cache, so its trials are fewer than they seem"
            )
            yield Caution("repeats", name, text)
        if number := tally.ungraded:
            text = f"the grader failed on {number} answers; they are kept, and `adaptive-eval regrade` tries them again"
            yield Caution("ungraded", name, text)
        if number := tally.signals["timed_out"]:
            yield Caution("timed_out", name, _late(number, tally.trials, bounds[model]))
        for signal, meaning in _MEANING.items():
            share = tally.signals[signal] / max(tally.trials, 1)
            if share >= SHARE_WORTH_SAYING:
                yield Caution(signal, name, f"{share:.1%} of its answers {meaning}")


def _late(number: int, trials: int, bounds: Bounds | None) -> str:
    told = f"{number} of {trials} answers ran out of time at every attempt"
    if bounds is None:
        return f"{told}, and are not part of any score"
    return f"{told}; its score is {bounds.lowest:.4f} if all of them had been wrong, {bounds.highest:.4f} if right"
