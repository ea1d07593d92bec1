"""The decision core: a pure controller that turns graded trials into the next trials, and says when to stop.

This package exports all that a program embedding it needs: the controller and its plan; every objective, rule and
policy; the Protocols for your own; the registries of named ones; and the values that go in and come out. Each name is
imported when it is first used.
"""

# ruff: noqa: F403

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each of these names, and no other, is imported when it is first used
    from adaptive_eval.core.controller import *
    from adaptive_eval.core.entries import *
    from adaptive_eval.core.evidence import *
    from adaptive_eval.core.judge import *
    from adaptive_eval.core.near_best import *
    from adaptive_eval.core.objectives import *
    from adaptive_eval.core.optimal import *
    from adaptive_eval.core.plan import *
    from adaptive_eval.core.policies import *
    from adaptive_eval.core.registry import *
    from adaptive_eval.core.result import *
    from adaptive_eval.core.rules import *
    from adaptive_eval.core.settings import *
    from adaptive_eval.core.stages import *
    from adaptive_eval.core.types import *

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
