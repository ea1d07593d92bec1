"""The log of a run: rows of a sequence number and a record, in the order in which decisions follow.

A trial, a look and a stored value have one row, the newest: an earlier one of the same key is overwritten.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from adaptive_eval.machine.charges import Charge
from adaptive_eval.machine.trial import Key, Trial

Json = Mapping[str, Any]


class Dropped(NamedTuple):
    """A trial has no row any more: it is asked again later, or never."""

    key: Key


class LookTaken(NamedTuple):
    """A look, with its decisions as plain values."""

    number: int
    body: Json


class LooksForgotten(NamedTuple):
    """The looks from this number on do not follow from the log as it is now."""

    number: int


class Note(NamedTuple):
    """An event: its kind, the model it is about, and whatever else it says."""

    kind: str
    model: int | None = None
    body: Json = {}


SET_ASIDE = "set_aside"
"""A model whose servers cannot be used; body: reason, cause."""
CORE_SET_ASIDE = "core_set_aside"
"""A model that the core goes on without; body: cause and reason. It follows from the log."""
STARTED, RESUMED = "started", "resumed"
"""A start; body: judged_at_once."""
BEGUN = frozenset({STARTED, RESUMED})
SETTINGS = "configured"
"""The settings were changed; body: configuration, and of those before it the looks by then and whether they have taken
any."""
FINISHED = "finished"
"""A start has come to its end; body: reason."""
STOPPED = "stopped"
"""A start has ended without being finished."""
ALARM = "alarm"
"""An alarm about the answers of a model; body: fault, text, and since when if its server has changed."""
IMPORTED = "imported"
"""The run begins with imported trials; body: repeats_count, and so on."""
DISCARDED = "answers_lost"
"""Answers of a model since an alarm were discarded, to be asked again; body: answers, discarded."""
ASKED_AGAIN = "asked_again"
"""Notice of requests without an answer that were dropped, to be asked again."""
PROMPT_EXCEEDED = "prompt_exceeded"
"""Notice of the first answer that used more than was reserved for it, as its server adds to prompts."""
REGRADED = "regraded"
"""Stored answers were graded again; body: trials, and so on."""
REGRADING = "regrading"
"""Stored answers are being graded again; shown, not stored; body: trials."""
LOOKS_RETAKEN = "looks_retaken"
"""Looks of earlier starts were taken again, and differ; body: looks."""
UNGRADED_ANSWER = "ungraded"
"""The first answer of a model in this start on which the grader has failed; body: question, error."""
SETTLED = "settled"
"""No comparison can need a model again under the settings of today; body: launched, if its server was."""


class SettingsEffect(StrEnum):
    """The effect of changed settings on looks that were taken."""

    NONE = "none"
    """Both decide alike."""
    DECISIONS = "decisions"
    """Looks stand, and the run goes on otherwise."""
    PROMISE = "promise"
    """Looks stand, and every pair is judged anew from the next look on."""


class SettingsEnd(NamedTuple):
    """Where a configuration was replaced by the next."""

    seq: int
    looks: int
    """Looks that the run had taken."""
    has_looked: bool
    """Whether any of them was taken under this configuration."""


Record = Trial | Dropped | Charge | LookTaken | LooksForgotten | Note
Row = tuple[int, Record]
