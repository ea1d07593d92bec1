"""The decision core: a pure controller that turns graded trials into the next trials, and says when to stop.

This package exports all that a program embedding it needs: the controller and its plan; every objective, rule and
policy; the Protocols for your own; the registries of named ones; and the values that go in and come out. Each name is
imported when it is first used.
"""

# ruff: noqa: I001 (exported names, sorted by the module that defines them)

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adaptive_eval.core.controller import Controller as Controller
    from adaptive_eval.core.entries import Entry as Entry, Option as Option
    from adaptive_eval.core.evidence import Estimates as Estimates, Evidence as Evidence, Prior as Prior
    from adaptive_eval.core.judge import Judging as Judging
    from adaptive_eval.core.objectives import (
        Baseline as Baseline,
        Best as Best,
        Cheapest as Cheapest,
        Objective as Objective,
        ObjectiveEntry as ObjectiveEntry,
        Pairs as Pairs,
        Place as Place,
        PrecisionOf as PrecisionOf,
        Ranking as Ranking,
        Threshold as Threshold,
        TopK as TopK,
    )
    from adaptive_eval.core.near_best import NearBest as NearBest
    from adaptive_eval.core.optimal import Optimal as Optimal
    from adaptive_eval.core.plan import Plan as Plan
    from adaptive_eval.core.policies import (
        Policy as Policy,
        Uniform as Uniform,
        UnresolvedPairs as UnresolvedPairs,
        View as View,
        Weighted as Weighted,
    )
    from adaptive_eval.core.registry import OBJECTIVES as OBJECTIVES, POLICIES as POLICIES, RULES as RULES
    from adaptive_eval.core.result import (
        ComparisonResult as ComparisonResult,
        ModelResult as ModelResult,
        Result as Result,
    )
    from adaptive_eval.core.rules import (
        Anytime as Anytime,
        Correctable as Correctable,
        ErrorLeft as ErrorLeft,
        Extendable as Extendable,
        GivingUp as GivingUp,
        Precision as Precision,
        Rule as Rule,
        RuleEntry as RuleEntry,
        ZScore as ZScore,
    )
    from adaptive_eval.core.settings import (
        Bench as Bench,
        Budget as Budget,
        Pace as Pace,
        Trials as Trials,
    )
    from adaptive_eval.core.stages import Extension as Extension, StageBefore as StageBefore
    from adaptive_eval.core.types import (
        NO_COST as NO_COST,
        Ask as Ask,
        Cost as Cost,
        Look as Look,
        Outcome as Outcome,
        PairVerdict as PairVerdict,
        Reason as Reason,
        SetAside as SetAside,
        Verdict as Verdict,
    )

_HOMES = {
    "controller": "Controller",
    "entries": "Entry Option",
    "evidence": "Estimates Evidence Prior",
    "judge": "Judging",
    "near_best": "NearBest",
    "objectives": "Baseline Best Cheapest Objective ObjectiveEntry Pairs Place PrecisionOf Ranking Threshold TopK",
    "optimal": "Optimal",
    "plan": "Plan",
    "policies": "Policy Uniform UnresolvedPairs View Weighted",
    "registry": "OBJECTIVES POLICIES RULES",
    "result": "ComparisonResult ModelResult Result",
    "rules": "Anytime Correctable ErrorLeft Extendable GivingUp Precision Rule RuleEntry ZScore",
    "settings": "Bench Budget Pace Trials",
    "stages": "Extension StageBefore",
    "types": "NO_COST Ask Cost Look Outcome PairVerdict Reason SetAside Verdict",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME_OF)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    value: object = _registered(name) if home is None else getattr(import_module(f"adaptive_eval.core.{home}"), name)
    globals()[name] = value
    return value


def _registered(name: str) -> object:
    """A rule, policy or objective that is only in the registry: its line there is all that it needs."""
    if name[:1].isupper():
        registry = import_module("adaptive_eval.core.registry")
        for entry in (*registry.RULES.values(), *registry.POLICIES.values(), *registry.OBJECTIVES.values()):
            if getattr(entry.make, "__name__", None) == name:
                return entry.make
    raise AttributeError(f"module 'adaptive_eval.core' has no attribute {name!r}")
