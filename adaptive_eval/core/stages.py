"""A run whose settings were changed after looks: each stage continues from the end of the one before.

Past looks stand. A new stage takes over the committed trials, the rounds in flight and, if the promise is the same, the
verdicts and the rule. A pair that was judged before keeps its rule: unchanged, or with its remaining error if the
horizon or the spacing of looks has changed, or a model has come back. So does a pair of a model that was away: it goes
on from the last stage that had both of its models. A pair with a model that has joined starts anew, under the form of
the rule that holds at any looks, since its first look may come late.

Models keep their order from stage to stage, so that a pair keeps its sign.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Evidence, IndexArray
from adaptive_eval.core.judge import BoolArray, DecidingLooks, LatchedVerdicts
from adaptive_eval.core.rules import (
    Extendable,
    Rule,
    has_error_left,
    is_giving_up,
    judges_by_pair,
    tie_boundary,
)
from adaptive_eval.core.settings import require
from adaptive_eval.core.types import ModelNumbers, Outcome
from scorio.moments import FloatArray

if TYPE_CHECKING:
    from adaptive_eval.core.controller import Controller

Verdicts = TypeVar("Verdicts", LatchedVerdicts, DecidingLooks)
NEW = -1
"""The place among earlier pairs of a pair that is new."""


class StageBefore(NamedTuple):
    """The run as it stood when its settings were changed; it has taken a look."""

    run: "Controller"
    models: ModelNumbers
    verdicts_stand: bool = True
    """Whether all that the promise depends on is unchanged; if not, every pair is judged anew from the next look on."""
    returning: Sequence[Outcome] = ()
    """Outcomes of models that were in the run before the stage before, and come back."""
    earlier: Sequence[ModelNumbers] = ()
    """The numbers of the models in the stages before that one, the latest first."""

    def stages(self, *, standing: bool = False) -> Iterator[tuple["Controller", ModelNumbers]]:
        """The stages so far, the latest first, each with the number of every model in it; if `standing`, only those
        whose verdicts stand."""
        stage: StageBefore | None = self
        for models in (self.models, *self.earlier):
            if stage is None or (standing and not stage.verdicts_stand):
                return
            yield stage.run, models
            stage = stage.run.plan.before

    def last_places(self, *, standing: bool = False) -> dict[int, tuple["Controller", int]]:
        """By model: the last stage that had it, and its number there; without models that are new."""
        places: dict[int, tuple[Controller, int]] = {}
        for run, models in self.stages(standing=standing):
            for model, old_number in enumerate(models):
                if old_number is not None:
                    places.setdefault(model, (run, old_number))
        return places

    def pairs_of_stages(self, now: tuple[IndexArray, IndexArray]) -> "dict[Controller, PairPlaces]":
        """The stages whose verdicts stand and that were the last to judge some of the pairs of `now`, with the places
        of these among theirs."""
        found: dict[Controller, PairPlaces] = {}
        missing = np.ones(len(now[0]), bool)
        for run, models in self.stages(standing=True) if len(missing) else ():
            places = PairPlaces.between(models, now, run.plan.judged_pairs, run.plan.bench.models).only(missing)
            if run is self.run or not places.new.all():
                found[run], missing = places, missing & places.new
        return found

    def check(self, models: int) -> None:
        """Raise unless this can precede a plan for so many models."""
        require(len(self.models) == models, f"the stage before needs a number for each of {models} models", self.models)
        for numbers in (self.models, *self.earlier):
            kept = [old_number for old_number in numbers if old_number is not None]
            require(kept == sorted(set(kept)), "models must stay in the order they had", numbers)
        taker = self.run.taker
        require(taker.taken > 0, "settings change freely before the first look", taker.taken)
        require(taker.keep, "the stage before must have kept what the next one needs", taker.keep)


class Extension(NamedTuple):
    """A change of the horizon, as it was carried out."""

    before: int
    """`trials.max` before the change."""
    now: int
    looks: int
    """Looks that had been taken."""
    leaves_error: bool
    """Whether the rule limits each pair to its unspent error (`rules.ErrorLeft`)."""


class PairPlaces:
    """The positions of the current pairs among the pairs of the stage before."""

    def __init__(self, old_places: IndexArray, old_pairs: int) -> None:
        """`old_places`: of the current pairs, among so many `old_pairs`."""
        self.old_places, self._old_pairs = old_places, old_pairs
        self.changed = len(old_places) != old_pairs or bool(self.new.any())
        self._now_of = np.zeros(old_pairs, dtype=np.intp)
        self._now_of[old_places[~self.new]] = np.flatnonzero(~self.new)

    @classmethod
    def between(
        cls,
        models: ModelNumbers,
        now: tuple[IndexArray, IndexArray],
        before: tuple[IndexArray, IndexArray],
        old_models: int,
    ) -> "PairPlaces":
        """`now` and `before`: the judged pairs of both stages; `old_models`: how many models the stage before had."""
        numbers = np.array([*(NEW if old_number is None else old_number for old_number in models), old_models])
        old_places = {key: place for place, key in enumerate(_numbered(np.stack(before, axis=1).tolist()))}
        keys = _numbered(numbers[np.stack(now, axis=1)].tolist())  # the reference comes last
        return cls(np.array([old_places.get(key, NEW) for key in keys], dtype=np.intp), len(old_places))

    def only(self, mask: BoolArray) -> "PairPlaces":
        """The places of some of the pairs; all others are new."""
        return PairPlaces(np.where(mask, self.old_places, NEW), self._old_pairs)

    def through(self, before: "PairPlaces") -> "PairPlaces":
        """The places among the pairs that `before` leads to from those of the stage before."""
        return PairPlaces(self.carry(before.old_places, np.full(len(self.new), NEW)), before._old_pairs)

    @property
    def new(self) -> BoolArray:
        """Pairs that the stage before did not have."""
        return np.asarray(self.old_places == NEW)

    def carry(self, before: NDArray[Any], fresh: NDArray[Any]) -> NDArray[Any]:
        """Values of the current pairs: those of the stage before, and `fresh` ones for new pairs."""
        return np.where(self.new, fresh, before[np.maximum(self.old_places, 0)]) if len(before) else fresh

    def carry_each(self, before: Verdicts, fresh: Verdicts) -> Verdicts:
        """The same for each array of such verdicts."""
        return type(fresh)(*(self.carry(getattr(before, name), getattr(fresh, name)) for name in fresh.__slots__))

    def evidence_before(self, evidence: Evidence) -> Evidence:
        """The current evidence, in the order of the earlier pairs; for a removed pair it has that of any other pair."""
        return evidence.at_positions(self._now_of)

    def evidence_now(self, before: Evidence, now: Evidence) -> Evidence:
        """Evidence of the stage before on the current pairs, those of `now`; new pairs had no trials."""
        nothing, paired = np.zeros(len(self.old_places)), None
        if before.paired is not None:
            paired = self.carry(before.paired, np.zeros(len(self.old_places), bool))
        return replace(
            now,
            difference=self.carry(before.difference, nothing),
            sigma=self.carry(before.sigma, nothing + np.inf),
            z=self.carry(before.z, nothing),
            information=self.carry(before.information, nothing),
            paired=paired,
        )


def _numbered(pairs: Iterable[list[int]]) -> Iterable[tuple[int, int, int]]:
    """Pairs, each with how often it has occurred before: the parts of a gate are pairs of the same models."""
    seen: Counter[tuple[int, int]] = Counter()
    for first, second in pairs:
        yield first, second, seen[first, second]
        seen[first, second] += 1


def at_any_looks(rule: Rule) -> Rule:
    """The form of a rule whose promise holds wherever its looks lie."""
    return rule.ties if is_giving_up(rule) else rule


def extended(rule: Rule, looks: Sequence[Evidence], now: Evidence, delta: float) -> Rule:
    """The rule under another horizon: `looks` were taken under the old one, `now` is their last under the new."""
    return rule.extended(looks, now, delta) if isinstance(rule, Extendable) else rule


def _of_p_values(rule: Rule) -> Any:
    """The rule that gives the p-values of a rule."""
    return getattr(rule, "ties", rule)


def regrouped(rule: Rule, fresh: Rule, places: PairPlaces) -> Rule:
    """The rule after models have joined or left: `fresh` judges the pairs of models that joined or were away."""
    is_alike = judges_by_pair(rule) and judges_by_pair(fresh) and not (is_giving_up(rule) and places.new.any())
    if not places.changed or is_alike:
        return rule
    joined = at_any_looks(fresh)
    for part, its_places in reversed([*_parts(rule, places)]):
        joined = JoinedRule(part, joined, its_places)
    return joined


def _parts(rule: Rule, places: PairPlaces) -> Iterator[tuple[Rule, PairPlaces]]:
    """The rules that judge some of the pairs, each once, with the places of its pairs; as a row, not as a tree, a look
    takes time for each of them alone, however often models have come and gone."""
    if isinstance(rule, JoinedRule):
        yield from _parts(rule.rule, places.through(rule.places))
        of_fresh = places.carry(rule.places.new, np.zeros(len(places.new), bool))
        yield from _parts(rule.fresh, places.only(of_fresh))
    elif not places.new.all():
        yield rule, places


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRule:
    """A rule after models have joined or left. It has whatever `rule` has besides a boundary."""

    by_pair: ClassVar[bool] = False
    rule: Rule
    """For the pairs of the stage before."""
    fresh: Rule
    """For all others."""
    places: PairPlaces

    def boundary(self, evidence: Evidence) -> FloatArray:
        before = self.rule.boundary(self.places.evidence_before(evidence))
        return self.places.carry(before, self.fresh.boundary(evidence))

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> Rule:
        """Both parts under another horizon."""
        before = self.places.evidence_before
        rule = extended(self.rule, list(map(before, looks)), before(now), delta)
        return JoinedRule(rule, extended(self.fresh, looks, now, delta), self.places)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self.__slots__:  # no rule is set yet while this is being copied
            raise AttributeError(name)
        of_rule, places = getattr(self.rule, name), self.places
        if name == "ties":
            return JoinedRule(of_rule, _of_p_values(self.fresh), places)
        if name == "at_level":
            return lambda alpha: JoinedRule(of_rule(alpha), self.fresh.at_level(alpha), places)  # type: ignore[attr-defined]
        of_new = self._OF_NEW_PAIRS.get(name)
        if of_new is None:
            return of_rule
        return lambda evidence, *more: places.carry(
            of_rule(places.evidence_before(evidence), *more), of_new(self.fresh, evidence, *more)
        )

    _OF_NEW_PAIRS: ClassVar[Mapping[str, Callable[..., NDArray[Any]]]] = {
        "strict_boundary": lambda fresh, evidence: fresh.strict_boundary(evidence),
        "p_value": lambda fresh, evidence, sign: _of_p_values(fresh).p_value(evidence, sign),
        "gives_up": lambda fresh, evidence: np.zeros(len(evidence.z), bool),
        "exhausted": lambda fresh, evidence: (
            fresh.exhausted(evidence) if has_error_left(fresh) else np.zeros(len(evidence.z), bool)
        ),
        "margin_boundary": lambda fresh, evidence, sign: (
            fresh.margin_boundary(evidence, sign) if has_error_left(fresh) else tie_boundary(fresh, evidence)
        ),
    }
    """Results of a rule's methods for the pairs that the stage before did not have."""
