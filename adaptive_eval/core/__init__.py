"""The decision core: a pure controller that turns graded trials into the next trials, and says when to stop.

Here is all that whoever embeds it needs: the controller and its plan; every objective, rule and policy, the Protocols
for your own, and the lists of those that have a name; and the values that go in and come out. Each is imported when it
is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adaptive_eval.core.anytime import Anytime
    from adaptive_eval.core.controller import Controller
    from adaptive_eval.core.entries import Entry, Option
    from adaptive_eval.core.evidence import Estimates, Evidence, Prior
    from adaptive_eval.core.horizon import Extension, PastHorizon
    from adaptive_eval.core.judge import Judging
    from adaptive_eval.core.objectives import (
        Baseline,
        Best,
        Objective,
        ObjectiveEntry,
        Pairs,
        Place,
        PrecisionOf,
        Ranking,
        Threshold,
        TopK,
    )
    from adaptive_eval.core.optimal import Optimal
    from adaptive_eval.core.plan import Plan
    from adaptive_eval.core.policies import Leader, Policy, PolicyEntry, Uniform, UnresolvedPairs, View, Weighted
    from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES
    from adaptive_eval.core.result import ComparisonResult, ModelResult, Result
    from adaptive_eval.core.rules import (
        Correctable,
        ErrorLeft,
        ExpectedLoss,
        Extendable,
        GivingUp,
        Precision,
        Rule,
        RuleEntry,
        ZScore,
    )
    from adaptive_eval.core.settings import Bench, Budget, Pace, Trials
    from adaptive_eval.core.types import NO_COST, Ask, Cost, Look, Outcome, PairVerdict, Reason, SetAside, Verdict

_HOMES = {
    "anytime": ("Anytime",),
    "controller": ("Controller",),
    "entries": ("Entry", "Option"),
    "evidence": ("Estimates", "Evidence", "Prior"),
    "horizon": ("Extension", "PastHorizon"),
    "judge": ("Judging",),
    "objectives": (
        "Baseline",
        "Best",
        "Objective",
        "ObjectiveEntry",
        "Pairs",
        "Place",
        "PrecisionOf",
        "Ranking",
        "Threshold",
        "TopK",
    ),
    "optimal": ("Optimal",),
    "plan": ("Plan",),
    "policies": ("Leader", "Policy", "PolicyEntry", "Uniform", "UnresolvedPairs", "View", "Weighted"),
    "registry": ("OBJECTIVES", "POLICIES", "RULES"),
    "result": ("ComparisonResult", "ModelResult", "Result"),
    "rules": (
        "Correctable",
        "ErrorLeft",
        "ExpectedLoss",
        "Extendable",
        "GivingUp",
        "Precision",
        "Rule",
        "RuleEntry",
        "ZScore",
    ),
    "settings": ("Bench", "Budget", "Pace", "Trials"),
    "types": ("NO_COST", "Ask", "Cost", "Look", "Outcome", "PairVerdict", "Reason", "SetAside", "Verdict"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Anytime",
    "Ask",
    "Baseline",
    "Bench",
    "Best",
    "Budget",
    "ComparisonResult",
    "Controller",
    "Correctable",
    "Cost",
    "Entry",
    "ErrorLeft",
    "Estimates",
    "Evidence",
    "ExpectedLoss",
    "Extendable",
    "Extension",
    "GivingUp",
    "Judging",
    "Leader",
    "Look",
    "ModelResult",
    "NO_COST",
    "OBJECTIVES",
    "Objective",
    "ObjectiveEntry",
    "Optimal",
    "Option",
    "Outcome",
    "POLICIES",
    "Pace",
    "PairVerdict",
    "Pairs",
    "Place",
    "Plan",
    "Policy",
    "PolicyEntry",
    "Precision",
    "PrecisionOf",
    "Prior",
    "RULES",
    "Ranking",
    "Reason",
    "Result",
    "Rule",
    "RuleEntry",
    "SetAside",
    "PastHorizon",
    "Threshold",
    "TopK",
    "Trials",
    "Uniform",
    "UnresolvedPairs",
    "Verdict",
    "View",
    "Weighted",
    "ZScore",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    found: object = _listed(name) if home is None else getattr(import_module(f"adaptive_eval.core.{home}"), name)
    globals()[name] = found
    return found


def _listed(name: str) -> object:
    """A rule, a policy or an objective that only the registry names so far: its line there is all that it needs."""
    if name[:1].isupper():
        registry = import_module("adaptive_eval.core.registry")
        for entry in (*registry.RULES.values(), *registry.POLICIES.values(), *registry.OBJECTIVES.values()):
            if getattr(entry.make, "__name__", None) == name:
                made: object = entry.make
                return made
    raise AttributeError(f"module 'adaptive_eval.core' has no attribute {name!r}")
