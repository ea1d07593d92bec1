"""The pace of a run, which `trials.optimize` determines: how large rounds are, and how far they run ahead of looks.

`cost`, for paid answers: all models go from round to round together, with one trial a question each, and nothing is
asked that the next look does not need.

`time`, for paid time: servers are kept full. Each model has its own rounds, many of them in flight: a look waits for
the slowest answer of its round, the servers do not. Once a model is in no open comparison, its unsent requests are
dropped, and its server can be stopped. The depth is a constant, which must outlast a slow answer with 64 slots and fill
256 slots (benchmarks/hours.md). It counts trials, so that there are fewer rounds with more questions; it does not
depend on concurrency, so that concurrency changes no look.

With batch services, what counts is the number of waits: rounds are as large as needed, all models go in step, and a
round takes equally long whatever its size (benchmarks/batches.md). This also holds for launched servers in such a run,
which are stopped while it waits for a batch.
"""

from collections.abc import Sequence
from typing import Literal

from adaptive_eval.config.decisions import TrialsConfig
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.core.settings import Pace
from adaptive_eval.endpoints.types import EndpointConfig

Optimize = Literal["cost", "time"]

AHEAD, MAX_AHEAD = 360, 0.15
"""Trials of a model in flight beyond the next look's, and their limit per question as a share of `trials.max`. A round
of more questions than that fills the servers by itself, and nothing is asked ahead of its look."""
OPENING = 0.15
"""Size of the first round at the pace `time`, as a share of `trials.max`."""
SHARE_IN_BATCHES, OPENING_IN_BATCHES = 0.7, 0.3
"""With batches, a round as a share of the minimum that is needed, and the first round as a share of `trials.max`."""


INSPECT_ON_OWN_SERVERS = ("hf", "vllm", "sglang", "ollama", "llama-cpp-python")
"""Prefixes of models in Inspect that run on the user's own servers."""


def choose_optimize(models: Sequence[ModelConfig], trials: TrialsConfig) -> tuple[Optimize, str]:
    """Choose `time` if any model is on the user's own server, else `cost`; with the reason."""
    if trials.draw is not None:
        return "cost", "trials.draw asks the questions block by block"
    own_servers = [model.name for model in models if is_own_server(model)]
    if not own_servers:
        return "cost", "no model is known to be on a server of your own, so you pay for answers"
    named = f"{own_servers[0]} is" if len(own_servers) == 1 else f"{own_servers[0]} and {len(own_servers) - 1} more are"
    subject, addition = (
        ("all models are", "")
        if len(own_servers) == len(models)
        else (named, ". Requests to the other models are sent ahead, too")
    )
    reasons = dict.fromkeys(filter(None, map(_why_own_server, models)))
    explanation = f"on your own servers ({' or '.join(reasons)}), where you pay for time"
    return "time", f"{subject} {explanation}{addition}"


def is_own_server(model: ModelConfig) -> bool:
    """Whether a model is on the user's own server. A command is not: it may cost anything."""
    return _why_own_server(model) is not None


def _why_own_server(model: ModelConfig) -> str | None:
    """What shows that a model is on the user's own server; None if nothing does."""
    if model.batch is not None or model.command is not None:
        return None
    if model.launch is not None:
        return "started by the run"
    if model.gpus:
        return "with gpus"
    if model.price is not None and model.price.is_zero:
        return "with price 0"
    if model.inspect is not None:  # Inspect has its own keys and addresses
        provider = model.inspect_name.partition("/")[0]
        return f"served by {provider}" if model.price is None and provider in INSPECT_ON_OWN_SERVERS else None
    return "without price and key" if model.price is None and not is_known_by(model) else None


def is_known_by(server: EndpointConfig) -> bool:
    """Whether requests carry anything that identifies a customer."""
    return bool(server.key_variable or server.auth or server.headers)


def opening_trials(trials: TrialsConfig, *, batched: bool = False) -> int:
    """Trials per question before the first look."""
    return make_pace(trials, questions=1, batched=batched).first_round(trials.min, trials.max)


def make_pace(trials: TrialsConfig, questions: int, *, batched: bool = False) -> Pace:
    """The pace for a number of questions; `batched` if any model uses a batch service.

    An unresolved `auto` counts as `cost`.
    """
    if trials.draw is None and batched:
        return Pace(share=SHARE_IN_BATCHES, opening=round(OPENING_IN_BATCHES * trials.max))
    if trials.draw is not None or trials.optimize != "time":
        return Pace()
    in_rounds = min(AHEAD / questions, MAX_AHEAD * trials.max)
    lookahead = max(round(in_rounds), 1) if questions <= AHEAD else 0
    return Pace(lookahead=lookahead, opening=round(OPENING * trials.max), dedicated_servers=True)
