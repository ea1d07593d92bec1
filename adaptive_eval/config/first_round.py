"""Checks before the first round whether the caps cover its worst case, and whether answers to a question differ."""

import math
from collections.abc import Container, Iterator, Sequence

import numpy as np

from adaptive_eval.base.lists import first_few
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.config.planning import asked_first, bounded_costs, ending_gpu_seconds
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.plan import Plan
from adaptive_eval.graders.by_benchmark import grader_that_asks
from adaptive_eval.graders.judge import Judge

UNITS: dict[str, tuple[float, int]] = {
    "trials": (1.0, 0),
    "tokens": (1.0, 0),
    "usd": (1.0, 2),
    "gpu_seconds": (3600.0, 3),
}
"""By currency of the plan: its units per unit of `budget`, and the decimals to show."""

NO_ANSWERS = "no answers will be requested, since the budget does not cover one answer per model"
TOO_FEW = "no answers will be requested, since the budget does not cover the first round"
NO_TIME = "no answers will be requested, since budget.gpu_hours is used up by what is kept back for the end of servers"
MAX_NAMED = 3
"""Models that a warning names."""
IN_PARTS = "the first round will be requested in parts; there is no ranking if the budget does not cover all of it"


def unbounded_models(plan: Plan, names: Sequence[str]) -> Iterator[str]:
    """A warning about models with unbounded answers, if a limit counts their cost."""
    if open_ := [name for name, worst in zip(names, plan.bench.worst_cost, strict=True) if worst.is_unbounded]:
        limits = " and ".join(f"budget.{key}" for key in ("tokens", "usd") if getattr(plan.budget, key) is not None)
        yield (
            f"nothing bounds the cost of an answer of {', '.join(open_)}, so the run may exceed {limits}. For a "
            "model on a server, set sampling.max_tokens to prevent that"
        )


def first_round_problems(prepared: PreparedRun) -> Iterator[str]:
    """Warnings of caps that do not cover the worst case of the first round, and of greedy models."""
    plan, config = prepared.plan, prepared.config
    yield from unbounded_models(plan, prepared.models)
    yield from _greedy_models(config)
    ending = ending_gpu_seconds(config.models, config.serving_groups) / 3600.0
    if (gpu_hours := config.budget.gpu_hours) is not None and config.launched and gpu_hours <= ending:
        yield (
            f"{NO_TIME}: it is {plain_number(gpu_hours)}, and {ending:,.3f} are kept back. Set budget.gpu_hours to "
            "more than that, and what it takes to start the servers and to answer"
        )
    opening, worst = asked_first(plan), bounded_costs(plan)
    trials, of_one_each = opening.sum(axis=1), np.minimum(opening, 1).sum(axis=1) @ worst
    needs, minimum = trials @ worst, np.minimum(trials, 1) @ worst
    minimum[0] = needs[0]
    enough, size = needs.copy(), ""
    if prepared.usual is not None:  # with as many tokens or USD as this round may cost it would be the usual one
        enough[1:3] = (asked_first(prepared.usual).sum(axis=1) @ worst)[1:3]
        size = f" (for the usual {prepared.usual.opening_size} trials per question)"
    amounts = zip(needs.tolist(), enough.tolist(), minimum.tolist(), of_one_each.tolist(), strict=True)
    for (name, (unit, decimals)), (need, usual, part, one_each) in zip(UNITS.items(), amounts, strict=True):
        cap = getattr(plan.budget, name)
        if cap is None or need <= cap:
            continue
        follows = IN_PARTS if part <= cap else TOO_FEW if name == "trials" else NO_ANSWERS
        *others, last = _keys_to_lower(config, name, follows is NO_ANSWERS, one_each > cap)
        key = cap_key(name)
        words = cap_unit(key)
        minimum_value, full_value = smallest_cap(name, part), smallest_cap(name, need)
        larger = f"{smallest_cap(name, usual):,.{decimals}f}{size if usual > need else ''}"
        cost = f"it may cost up to {full_value:,.{decimals}f} {words}"
        if follows is NO_ANSWERS:
            one_each = f"one answer per model may cost up to {minimum_value:,.{decimals}f} {words}"
            cost = f"{one_each}, and the first round up to {full_value:,.{decimals}f}"
        yield (
            f"{follows}: {cost}, but budget.{key} is {plain_number(cap / unit)}. Set budget.{key} to "
            f"{larger} or more, or lower {', '.join(others)}{' or ' if others else ''}{last}"
        )


def _greedy_models(config: RunConfig) -> Iterator[str]:
    """A warning about models that give nearly the same answer to a question every time."""
    greedy = [model for model in config.asked if model.command is None and model.temperature == 0]
    if greedy and config.trials.max > 1:
        keys = dict.fromkeys("sampling" if model.inspect is None else "models.inspect" for model in greedy)
        yield (
            f"at temperature 0, further answers of {first_few([model.name for model in greedy], MAX_NAMED)} to a "
            "question hardly differ from the first, but cost as much. Set "
            f"{' and '.join(f'{key}.temperature' for key in keys)}, or trials.max to 1"
        )


def unpaid_models(prepared: PreparedRun, joining: Container[str], used: Sequence[float]) -> Iterator[str]:
    """A warning for each cap that does not cover the first rounds of models that join a run; `used` (4,): what the run
    has used of each currency."""
    plan = prepared.plan
    trials, worst = plan.opening.sum(axis=1).tolist(), bounded_costs(plan)
    covered = wanted = 0
    for number, model in enumerate(prepared.models):
        if model not in joining or number in plan.bench.recorded:
            continue
        wanted += trials[number]
        needs = np.array(used, dtype=float) + worst[number]  # of usage one answer must fit, of trials all
        needs[0] = used[0] + covered + trials[number]
        is_covered = True
        for (name, (unit, decimals)), spent, needed in zip(UNITS.items(), used, needs.tolist(), strict=True):
            if (cap := getattr(plan.budget, name)) is not None and needed > cap:
                key, is_covered = cap_key(name), False
                enough = spent + wanted if name == "trials" else needed
                yield (
                    f"no answers of {model} will be requested, since the budget does not cover its first round: "
                    f"budget.{key} is {plain_number(cap / unit)}, of which {plain_number(spent / unit)} are used. Set "
                    f"it to {smallest_cap(name, enough):,.{decimals}f} or more"
                )
        covered += trials[number] * is_covered


def is_in_vain(problems: Sequence[str]) -> bool:
    """Whether one of these problems of the first round means that no answer will be requested."""
    return any(problem.startswith((NO_ANSWERS, TOO_FEW, NO_TIME)) for problem in problems)


def cap_key(currency: str) -> str:
    """The key of `budget` for a currency of the plan."""
    return "gpu_hours" if currency == "gpu_seconds" else currency


def cap_unit(key: str) -> str:
    """The quantity that a key of `budget` limits, in words."""
    return {"usd": "USD", "gpu_hours": "GPU hours"}.get(key, key)


def smallest_cap(currency: str, amount: float) -> float:
    """The smallest value of its key of `budget` that covers an amount, with the decimals to show."""
    unit, decimals = UNITS[currency]
    scale = 10.0**decimals
    return math.ceil(round(amount / unit * scale, 6)) / scale


def _keys_to_lower(config: RunConfig, name: str, of_one: bool, is_min_too_much: bool) -> Iterator[str]:
    """The keys that lower the cost of the first round, or with `of_one` that of a single answer; `is_min_too_much`: the
    cap does not even cover one answer to each question."""
    timed = name == "gpu_seconds"
    if name != "trials":
        yield "sampling.timeout" if timed else "sampling.max_tokens"
        if (grader := grader_that_asks(config.grader)) is not None:
            yield "grader.sampling.timeout" if timed else "grader.max_answer_bytes"
            if not timed and (grader.sampling.max_tokens or 0) > 1:
                yield "grader.sampling.max_tokens"
            if isinstance(grader, Judge) and grader.votes > 1:
                yield "grader.votes"
    if of_one:
        return
    if config.trials.draw is not None:
        yield "trials.draw"
    elif config.trials.min > 1 and not (is_min_too_much and name == "trials"):
        yield "trials.min"
    elif name == "trials":
        yield "the number of questions (questions.limit)"
