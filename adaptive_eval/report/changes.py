"""The settings that a resume may change, and the effect: docs/guide/resuming.md tells users the same.

Looks that were taken stand, and so do the calls that they made; a change holds from the next look on, and no stored
trial leaves a score because of it.

- Caps and `trials.max` may change, but not to less than what is used; models may join and leave; who gets the next
  trials (`trials.policy`, `optimize`) may change: the promise stands.
- Another rule, confidence, delta, gate, prior or objective judges all comparisons anew from the next look on, and the
  promise does not cover a choice that was made after looks.
- Refused is what contradicts what was done: a limit below what is used, and another first round.
- Where looks cannot be taken again, since plug-ins that took them are no longer named, all answers are judged anew.

What stored trials depend on (prompt, sampling, grader, rubric, seeds, questions) never changes (`config.fingerprint`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from adaptive_eval.base.errors import NEW_RUN, ConfigError
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.base.sections import Section
from adaptive_eval.config.fingerprint import differences
from adaptive_eval.config.pace import opening_trials
from adaptive_eval.config.planning import core_caps
from adaptive_eval.config.prepare import stored_config, with_pace
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.core.objectives import CHEAPEST
from adaptive_eval.core.types import Cost
from adaptive_eval.machine.records import SettingsEffect
from adaptive_eval.notes import Change
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.read import StoredLook

PROMISE = ("stopping.", "objective.", "prior", "rubric")
"""Beginnings of settings that the promise depends on."""
NOT_IN_PROMISE = "stopping.on_alarm"


def effect_of_changes(before: RunConfig, now: RunConfig) -> SettingsEffect:
    """Effect of resuming with other settings after looks; a pace that was not chosen is `cost`."""
    before, now = with_pace(before), with_pace(now)
    if _promise_settings(before) != _promise_settings(now):
        return SettingsEffect.PROMISE
    capped = any(core_caps(config.budget).bought for config in (before, now))
    same = before.trials.model_copy(update={"seeds": now.trials.seeds}) == now.trials and before.budget == now.budget
    same = same and _models(before, capped=capped) == _models(now, capped=capped)
    return SettingsEffect.NONE if same else SettingsEffect.DECISIONS


def single_changes(changes: Iterable[Change]) -> Iterator[Change]:
    """Each changed setting, also within the lists of models and benchmarks, which are stored as one value."""
    for change in changes:
        was, now = _by_name(change.was), _by_name(change.now)
        within = list(differences(was, now, change.path)) if was and now else []
        yield from within or [change]


def _by_name(listed: object) -> dict[object, object]:
    """Sections of a list by their names; empty if it is no list of named sections."""
    sections = listed if isinstance(listed, list | tuple) else ()
    return {
        section["name"]: section
        for section in sections
        if isinstance(section, Mapping) and isinstance(section.get("name"), str)
    }


def changes_promise(path: str) -> bool:
    """Whether the promise depends on a setting."""
    is_gate = path.startswith("benchmarks.") and path.endswith(".gate")
    return is_gate or (path.startswith(PROMISE) and path != NOT_IN_PROMISE)


def _promise_settings(config: RunConfig) -> list[Mapping[str, object]]:
    stopping = config.stopping.model_copy(update={"on_alarm": "all"})
    sections: list[Section | None] = [stopping, config.objective, config.prior]
    gates = {part.name: part.gate for part in config.benchmarks}
    return [gates, *({} if section is None else section.model_dump(mode="json") for section in sections)]


def _models(config: RunConfig, *, capped: bool) -> dict[str, object]:
    """Properties of each model that rounds depend on: its name, and under caps the cost of its trials."""
    return {model.name: _cost_settings(model) if capped else model.recorded is not None for model in config.models}


def _cost_settings(model: ModelConfig) -> object:
    keys = {"price", "gpus", "batch", "concurrency", "launch"}
    return model.model_dump(mode="json", include=keys) | {"timeout": model.sampling.timeout}


def require_compatible(stored: RunConfig, now: RunConfig, reader: RunReader, spent: Cost) -> None:
    """Raise `ConfigError` if settings contradict the looks that a run has taken, or what it has `spent`."""
    limits = _lowered(stored, now, reader, spent)
    problems = [*_price_problems(reader, now), *(limit.problem for limit in limits if limit.now < limit.used)]
    if reader.look_count():
        problems = [*_first_look_problems(stored, now, reader), *problems]
    if problems:
        raise ConfigError("\n".join(problems))


class Limit(NamedTuple):
    """A limit of the run: its value now and before, and what is used of it."""

    key: str
    now: float
    before: float | None
    used: float
    unit: str = ""

    @property
    def problem(self) -> str:
        """Why the limit cannot be so low, and what to type."""
        enough = math.ceil(self.used) if self.before is None else self.before
        was = "" if self.before is None else f" ({self.key} was {plain_number(self.before, 10)}{self.unit})"
        verb = "used" if self.unit else "used or reserved"  # for requests in flight, such as those of a batch
        used = f"this run has {verb} {plain_number(_rounded_up(self.used, self.unit), 10)}{self.unit}"
        if self.key == "trials.max":
            used = f"a model already has {plain_number(self.used, 10)} answers per question"
        goal = "To continue, add" if enough > self.used else "A higher limit continues it; to keep it as it is, set"
        return (
            f"{self.key} is {plain_number(self.now, 10)}{self.unit}, but {used}{was}. {goal}:\n"
            f"  --set {self.key}={plain_number(enough, 10, grouped=False)}{self.unit}"
        )


def _rounded_up(used: float, unit: str) -> float:
    """Seconds in tenths, never less than what was used; other amounts as they are."""
    return math.ceil(10.0 * used) / 10.0 if unit else used


def _lowered(stored: RunConfig, now: RunConfig, reader: RunReader, cost: Cost) -> Iterator[Limit]:
    """Limits that are lower than before, or new."""
    names = [name for name in type(now.budget).model_fields if getattr(now.budget, name) is not None]
    caps = {name: (getattr(now.budget, name), getattr(stored.budget, name)) for name in names}
    caps = {name: (cap, before) for name, (cap, before) in caps.items() if before is None or cap < before}
    if caps:
        used = {
            "trials": reader.trial_count(),
            "tokens": cost.tokens,
            "usd": cost.usd,
            "gpu_hours": cost.gpu_seconds / 3600.0,
            "wall_time": reader.log.elapsed,
        }
        for name, (cap, before) in caps.items():
            yield Limit(f"budget.{name}", cap, before, used[name], "s" if name == "wall_time" else "")
    if now.trials.max < stored.trials.max:
        by_model = Counter[str]()
        for row in reader.sums():
            by_model[row.model] += row.trials
        questions = max(len(reader.log.questions()), 1)
        max_trials = max((by_model[model.name] for model in now.models), default=0)
        yield Limit("trials.max", now.trials.max, stored.trials.max, round(max_trials / questions, 1))


def repriced_models(configurations: Iterable[RunConfig], now: RunConfig) -> list[str]:
    """Models whose price or GPUs are not those of their first configuration, if the choice of the cheapest goes by what
    their first answers have cost."""
    if now.objective.kind != CHEAPEST.name:
        return []
    prices: dict[str, tuple[object, object]] = {}
    for config in configurations:
        prices = {model.name: (model.price, model.gpus) for model in config.models} | prices
    return [model.name for model in now.models if prices.get(model.name) not in (None, (model.price, model.gpus))]


def _price_problems(reader: RunReader, now: RunConfig) -> Iterator[str]:
    bodies = reader.log.configurations()
    configurations = (stored_config(replace(reader.header(), configuration=body)) for body in bodies)
    if names := repriced_models(configurations, now):
        answered = {row.model for row in reader.sums() if row.trials}
        for name in (name for name in names if name in answered):
            yield (
                f"the price or the gpus of {name} are not those of its first answers, and the choice of the cheapest "
                f"goes by what these have cost; set them as they were, or {NEW_RUN}"
            )


def _first_look_problems(stored: RunConfig, now: RunConfig, reader: RunReader) -> Iterator[str]:
    """Changed settings that would have moved the first look."""
    before = stored.trials
    if before.draw != now.trials.draw:
        yield (
            f"trials.draw cannot change after the first look: it was {before.draw or 'not set'}, and is now "
            f"{now.trials.draw or 'not set'}; set it back, or {NEW_RUN}"
        )
    elif before.min != now.trials.min:
        if "min" in now.trials.model_fields_set:
            what = f"trials.min cannot change after the first look: it was {before.min}, and is now {now.trials.min}"
            yield f"{what}; set it to {before.min}, or {NEW_RUN}"
        else:  # it follows trials.max, which is too small for that of the run
            what = f"trials.max must be at least {before.min}, which was trials.min at the first look"
            yield f"{what}, but it is {now.trials.max}; raise it, or {NEW_RUN}"
    else:
        first = reader.log.looks()[0]
        configuration = reader.log.configurations()[first.configuration]
        begun = with_pace(stored_config(replace(reader.header(), configuration=configuration)))
        trials_before = opening_trials(begun.trials, batched=begun.batched)
        trials_now = opening_trials(now.trials.model_copy(update={"max": begun.trials.max}), batched=now.batched)
        if trials_before != trials_now and not is_capped_opening(first):
            yield (
                f"the first look came after {trials_before} trials per question, and {_pace_text(now)} would place it "
                f"at {trials_now}; keep {_pace_text(stored)}, or {NEW_RUN}"
            )


def is_capped_opening(first: StoredLook) -> bool:
    """Whether caps have allowed only `trials.min` before the first look."""
    return "capped_opening" in first.body


def _pace_text(config: RunConfig) -> str:
    return "a model with a batch" if config.batched else f"trials.optimize {config.trials.optimize}"
