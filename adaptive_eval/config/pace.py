"""How large rounds are, and how far they run ahead of looks: what `trials.favour` means.

Where answers are paid for, all models go from round to round together, one trial a question each (`answers`): nothing
is asked that the next look does not need.

Where time is paid for, servers are kept full (`time`). Each model has rounds of its own, and many of them in flight: a
look waits for the slowest answer of its round, the servers do not. Once a model is in no open comparison, what is not
sent yet stays unsent, and its server can go. The depth is a constant: it has to outlast a slow answer with 64 slots and
to fill 256 of them (benchmarks/hours.md). It is trials that fill slots, hence fewer rounds where there are more
questions; concurrency has no say, so that it changes no look.

Where models are asked through batch services, what counts is how often one waits for them: rounds are as large as the
need, all models go in step, and a round takes as long whatever its size (benchmarks/batches.md). So it is beside
servers of one's own, too: they are stopped while a batch is waited for (benchmarks/batches.md).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from adaptive_eval.config.decisions import TrialsConfig
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.core.settings import Pace

Favour = Literal["answers", "time"]

AHEAD, MOST_AHEAD = 360, 0.15
"""Trials of a model that are in flight beside those that the next look waits for, and at most so much of `trials.max`
for each question."""
OPENING = 0.15
"""Of `trials.max`: the first round where time is paid for."""
SHARE_IN_BATCHES, OPENING_IN_BATCHES = 0.7, 0.3
"""Where a round is a batch: its share of what is needed at the soonest, and the first one's of `trials.max`."""


INSPECT_ON_OWN_SERVERS = ("hf", "vllm", "sglang", "ollama", "llama-cpp-python")
"""Where the name of a model in Inspect begins so, it runs on servers of the user's own."""


class FavourChoice(NamedTuple):
    """The choice of `auto`, and why."""

    favour: Favour
    why: str


def choose_favour(models: Sequence[ModelConfig], trials: TrialsConfig) -> FavourChoice:
    """Choose what to save: time if any model is on a server of the user's own, else answers."""
    if trials.draw is not None:
        return FavourChoice("answers", "questions that are drawn are asked block by block")
    own = [model.name for model in models if is_own_server(model)]
    if not own:
        by_inspect = any(model.inspect is not None for model in models)
        known_by = "is one that Inspect asks at a provider" if by_inspect else "has a price, a key or headers"
        return FavourChoice("answers", f"every model {known_by}: its answers are what you pay for")
    some = f"{own[0]} is" if len(own) == 1 else f"{own[0]} and {len(own) - 1} more are"
    whose, beside = ("all models are", "") if len(own) == len(models) else (some, "; the others are asked ahead, too")
    paid = "on servers of your own (no price, no key), where time is what you pay for"
    return FavourChoice("time", f"{whose} {paid}{beside}")


def is_own_server(model: ModelConfig) -> bool:
    """Whether a model is served by a server of the user's own: the run starts it, its GPUs are named, or there is
    neither a price nor anything by which a provider might know a customer."""
    if model.batch is not None:
        return False
    if model.inspect is not None:  # Inspect has keys and addresses of its own
        served_here = model.inspect.partition("/")[0] in INSPECT_ON_OWN_SERVERS
        return bool(model.gpus) or (model.price is None and served_here)
    known_by = model.key_variable or model.auth or model.headers or model.sampling.extra_headers
    return model.launch is not None or bool(model.gpus) or (model.price is None and not known_by)


def opening_of(trials: TrialsConfig, *, batched: bool = False) -> int:
    """Trials a question before the first look."""
    return pace_of(trials, questions=1, batched=batched).first_round(trials.min, trials.max)


def trials_in_words(config: RunConfig) -> str:
    """How many trials a question gets, in a line about the run; its pace is chosen."""
    trials = config.trials
    if trials.draw is not None:
        return f"one trial of each in blocks of {trials.draw}"
    opening = opening_of(trials, batched=config.batched)
    more = f" (the first round has {opening} at this pace, more than trials.min)" if opening > trials.min else ""
    return f"{opening} to {trials.max} trials a question{more}"


def pace_of(trials: TrialsConfig, questions: int, *, batched: bool = False) -> Pace:
    """The pace that `trials.favour` means for so many questions; `batched` where batch services answer for any model.

    Where `auto` was not settled, since nothing is known of models, it is `answers`.
    """
    lookahead = trials.lookahead
    if trials.draw is not None:
        return Pace(lookahead or 0)
    if batched:
        opening = round(OPENING_IN_BATCHES * trials.max)
        return Pace(lookahead=lookahead or 0, share=SHARE_IN_BATCHES, opening=opening, even=True)
    if trials.favour != "time":
        return Pace(lookahead or 0)
    if lookahead is None:
        lookahead = max(round(min(AHEAD / questions, MOST_AHEAD * trials.max)), 1)
    return Pace(lookahead=lookahead, opening=round(OPENING * trials.max), held=True)
