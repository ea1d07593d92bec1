"""How large rounds are, and how far they run ahead of looks: what `trials.favour` means.

Rounds of one trial a question that all models go through together cost the fewest trials (`cost`); where rounds run
ahead of the looks, servers are fuller, for trials issued too many (`balanced`, `time`). Measured with 30 questions, 64
slots a model and answers of 30 s on AIME'24 and the coins (benchmarks/pace.md): `cost` keeps 13% of the slots of the
slowest open model busy; `balanced`, the knee, 35%, in two fifths of the time for 5 points more of the fixed cost;
`time` 90-93%, and takes a fifth of the time, which is that of a fixed number of trials, for 18-20 points more. Small
rounds that run ahead beat rounds that grow at nearly every price, so growth is 0. It is trials that fill slots, hence
fewer rounds where there are more questions; concurrency has no say, so that it changes no look.

Where servers are paid for by the hour, rounds are as large as the need (`servers`), and each model has its own
(benchmarks/hours.md). With a server each, trials run ahead, and no model idles while one that it is compared with
works. Where models share a place in turn, a swap has to be worth it: the first round is a third of the way, the others
most of what is needed at the soonest, and nothing runs ahead.

Where it matters that a run is over soon, and servers have slots to spare, rounds and looks are those of `cost`, and
slots that would be idle are asked what rounds to come are likely to want (`soon`). Looks do not depend on it; what no
round comes to want is paid for, and is more the more slots there are (benchmarks/wall.md). So it is where nobody names
a price: servers that need neither price nor key are somebody's own, and an idle slot costs there what a busy one does.

Where models are asked through batch services, what counts is how often one waits for them (`batches`): rounds are as
large as the need, all models go in step, and a round takes as long whatever its size (benchmarks/batches.md). So it is
beside servers that are paid for by the hour, too: they are stopped while a batch is waited for, and `servers` would
keep them busy meanwhile, with trials that nobody needs (benchmarks/mixed.md).
"""

from collections.abc import Sequence
from math import exp
from typing import Literal, NamedTuple

from adaptive_eval.config.decisions import AllocationConfig, TrialsConfig
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.core.settings import Pace

Favour = Literal["cost", "balanced", "time", "soon", "servers", "batches"]

AHEAD = {"cost": 0, "balanced": 60, "time": 360, "soon": 0, "servers": 210, "batches": 0}
"""Trials of a model that run ahead of a look, by `trials.favour`."""
AHEAD_IN_TURN = {"cost": 180, "balanced": 360, "time": 600, "soon": 600, "servers": 0, "batches": 0}
"""`AHEAD` where models are served in turn: what a model is asked at a time has to be worth its swap."""
MOST_AHEAD, MOST_AHEAD_IN_TURN = 0.15, 0.25
"""Rounds run ahead by at most this share of `trials.max`, whatever is favoured."""
SHARE, SHARE_IN_TURN = 0.5, 0.8
"""Rounds as large as the need are this share of it."""
OPENING, OPENING_IN_TURN = 0.15, 0.3
"""They begin with this share of `trials.max`."""
SHARE_IN_BATCHES, OPENING_IN_BATCHES = 0.7, 0.3
"""The same where a round is a batch."""
SHARE_SOON, OPENING_SOON = 2.0, 0.5
"""Idle slots are asked this share of what is needed at the soonest, and before the first look this one of
`trials.max`."""


GUESSED_SHARE = 0.25
"""Of `max_tokens`: the length of an answer where nothing is known."""
GUESSED_SPEED = 40.0
"""Tokens a second of one answer among many on a busy server."""
TRIALS_OF = {"cost": 0.55, "balanced": 0.60, "time": 0.75, "soon": 0.55}
"""Shares of the trials of the fixed design that rounds ask for, and how many looks in turn are waited for
(benchmarks/pace.md, benchmarks/wall.md)."""
LOOKS_OF = {"cost": 60, "balanced": 20, "time": 5, "soon": 2}
IN_VAIN = 0.36
"""Of the trials of the fixed design: what idle slots are asked in vain, at most, where slots are many times as many as
questions."""
LAST_ANSWER = 3.0
"""The last answer of a round comes after so many times the mean."""


class FavourChoice(NamedTuple):
    """What `auto` takes, and why."""

    favour: Favour
    why: str


def choose_favour(
    models: Sequence[ModelConfig],
    trials: TrialsConfig,
    questions: int,
    *,
    in_turn: bool = False,
    nothing_ahead: str | None = None,
) -> FavourChoice:
    """The pace that is expected to be cheapest: a function of the configuration alone.

    `nothing_ahead` is why idle slots would not be asked ahead, where that is so: then nothing is `soon`.
    """
    if trials.draw is not None:
        return FavourChoice("cost", "questions that are drawn are asked block by block, and a block is a large round")
    if any(model.batch is not None for model in models):
        return FavourChoice("batches", "each look waits for batches, which may take hours")
    if in_turn:
        return FavourChoice("servers", "models take turns on a server, which is paid for by the hour")
    if any(model.launch is not None or model.gpus for model in models):
        return FavourChoice("servers", "servers of your own are paid for by the hour")
    if all(map(_is_free, models)):
        return _where_nothing_is_priced(nothing_ahead)
    if unknown := [model for model in models if not _cost_is_known(model)]:
        what = f"what an answer of {unknown[0].name} costs is not known"
        return FavourChoice("balanced", f"{what}: no price, or no sampling.max_tokens")
    paces = [favour for favour in TRIALS_OF if favour != "soon" or nothing_ahead is None]
    costs = {favour: _expected_cost(favour, models, trials, questions) for favour in paces}
    favour = min(costs, key=costs.__getitem__)
    told = ", ".join(f"{name} ${cost:,.2f}" for name, cost in costs.items())
    why = f"by a rule of thumb tokens, and time at ${trials.hour_is_worth:g} an hour, come to {told}"
    return FavourChoice(favour, why)  # type: ignore[arg-type]


def _where_nothing_is_priced(nothing_ahead: str | None) -> FavourChoice:
    """Servers that ask for no key and have no price are somebody's own: what is paid there is the time for which they
    are there, and a slot that is idle costs as much as one that is busy."""
    own = "no model has a price or a key, so that servers are taken to be your own, where it is time that is paid"
    if nothing_ahead is None:
        return FavourChoice("soon", own)
    return FavourChoice("balanced", f"{own}; but idle slots cannot be asked ahead, since {nothing_ahead}")


def _cost_is_known(model: ModelConfig) -> bool:
    """What an answer costs: nothing beside its time, where there is neither price nor key."""
    return model.sampling.max_tokens is not None and (model.price is not None or _is_free(model))


def _is_free(model: ModelConfig) -> bool:
    """No price is named, and nothing that its servers might know a customer by: a key, a signature, headers."""
    known_by = model.key_variable or model.auth or model.headers or model.sampling.extra_headers
    return model.price is None and not known_by


def _expected_cost(favour: str, models: Sequence[ModelConfig], trials: TrialsConfig, questions: int) -> float:
    """US dollars for answers, and for the hours of the slowest model."""
    usd = sum(_expected_usd(favour, model, trials, questions) for model in models)
    seconds = max(_expected_seconds(favour, model, trials, questions) for model in models)
    return usd + trials.hour_is_worth * seconds / 3600.0


def _expected_usd(favour: str, model: ModelConfig, trials: TrialsConfig, questions: int) -> float:
    asked = _share_asked(favour, model, questions) * trials.max * questions
    return 0.0 if model.price is None else asked * _expected_tokens(model) * model.price.output / 1e6


def _expected_seconds(favour: str, model: ModelConfig, trials: TrialsConfig, questions: int) -> float:
    looks = LOOKS_OF[favour] * trials.max / 80.0
    asked = _share_asked(favour, model, questions) * trials.max * questions
    return _expected_tokens(model) / GUESSED_SPEED * (asked / _slots(model) + LAST_ANSWER * looks)


def _share_asked(favour: str, model: ModelConfig, questions: int) -> float:
    """Of the trials of the fixed design, those that the model is asked."""
    idle = 1.0 - exp(-_slots(model) / questions) if favour == "soon" else 0.0
    return TRIALS_OF[favour] + IN_VAIN * idle


def _expected_tokens(model: ModelConfig) -> float:
    return GUESSED_SHARE * (model.sampling.max_tokens or 0)


def _slots(model: ModelConfig) -> int:
    return model.concurrency.concurrency * len(model.replicas)


def opening_of(trials: TrialsConfig, *, in_turn: bool) -> int:
    """Trials a question before the first look."""
    return pace_of(AllocationConfig(), trials, questions=1, in_turn=in_turn).first_round(trials.min, trials.max)


def pace_of(allocation: AllocationConfig, trials: TrialsConfig, questions: int, *, in_turn: bool = False) -> Pace:
    """The pace that is given, else what `trials.favour` means for so many questions.

    Where `auto` was not settled, since nothing is known of models, it is `balanced`, or `servers` in turn.
    """
    favour = trials.favour
    if trials.draw is not None:
        return Pace(allocation.growth, allocation.lookahead or 0)
    if favour == "auto":
        favour = "servers" if in_turn else "balanced"
    ahead, most = (AHEAD_IN_TURN, MOST_AHEAD_IN_TURN) if in_turn else (AHEAD, MOST_AHEAD)
    lookahead = allocation.lookahead
    if lookahead is None:
        lookahead = round(min(ahead[favour] / questions, most * trials.max))
    if favour == "batches":
        opening = round(OPENING_IN_BATCHES * trials.max)
        return Pace(lookahead=lookahead, share=SHARE_IN_BATCHES, opening=opening, even=True)
    if favour == "soon" and not in_turn:
        opening = round(OPENING_SOON * trials.max)
        return Pace(allocation.growth, lookahead, ahead=SHARE_SOON, ahead_opening=opening)
    if favour != "servers":
        return Pace(allocation.growth, lookahead)
    if in_turn:
        return Pace(lookahead=lookahead, share=SHARE_IN_TURN, opening=round(OPENING_IN_TURN * trials.max))
    return Pace(lookahead=max(lookahead, 1), share=SHARE, opening=round(OPENING * trials.max), held=True)
