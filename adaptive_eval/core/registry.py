"""Every rule, policy and objective that can be configured by its name: one line each, in the order of lists for people.

A new one is a class with its entry in a file of its own or in that of its kind, and its line here. `make` makes one
from its options, whether it is listed here or is a user's own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, TypeVar

from adaptive_eval.core import anytime, objectives, optimal, policies, rules
from adaptive_eval.core.entries import Entry
from adaptive_eval.core.objectives import ObjectiveEntry
from adaptive_eval.core.policies import PolicyEntry
from adaptive_eval.core.rules import RuleEntry

Listed = TypeVar("Listed", bound=Entry[Any])
Made = TypeVar("Made")


def _by_name(*entries: Listed) -> dict[str, Listed]:
    return {entry.name: entry for entry in entries}


RULES: dict[str, RuleEntry] = _by_name(optimal.OPTIMAL, rules.PUBLISHED, anytime.ANYTIME, rules.EXPECTED_LOSS)
CONSTANT = replace(rules.PUBLISHED, caution=rules.PEEKING, latching=True, estimator="average")
RETIRED: dict[str, RuleEntry] = _by_name(
    replace(optimal.OPTIMAL, name="sequential", says=optimal.AT_ANY_LOOKS, gives_up=False, options=()),
    replace(CONSTANT, name="zscore", says="A comparison is called when |z| exceeds {threshold} at a look."),
    replace(CONSTANT, name="intervals", says="A comparison is called when two intervals part.", options=()),
)
"""Rules of earlier versions, of which stored runs tell; `optimal` is in their place."""
POLICIES: dict[str, PolicyEntry] = _by_name(
    policies.WEIGHTED,
    policies.UNRESOLVED_PAIRS,
    policies.UNIFORM,
    policies.LEADER,
    policies.SOONEST,
)
OBJECTIVES: dict[str, ObjectiveEntry] = _by_name(
    objectives.RANKING,
    objectives.BEST,
    objectives.TOP_K,
    objectives.BASELINE,
    objectives.PAIRS,
    objectives.PRECISION_OF,
    objectives.THRESHOLD,
    objectives.PLACE,
)


def make(factory: Callable[..., Made], options: Mapping[str, object], known: Mapping[str, object]) -> Made:
    """Call a factory with its options, and with those of the `known` values that it has parameters for.

    An option goes before what is known. Raises `TypeError` where the options are not those of the factory.
    """
    asked = parameters_of(factory)
    return factory(**({name: value for name, value in known.items() if name in asked} | dict(options)))


def parameters_of(factory: Callable[..., object]) -> tuple[str, ...]:
    """Names of a factory's parameters; none for a built-in class, which does not tell."""
    try:
        parameters: Iterable[Parameter] = signature(factory).parameters.values()
    except ValueError:
        return ()
    return tuple(
        one.name for one in parameters if one.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    )
