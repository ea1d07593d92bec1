"""Every rule, policy and objective that can be configured by name, one line each, in the order of lists.

A new one needs a class with its entry, and a line here. `make` creates built-in and user-defined ones from their
options.
"""

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from typing import Any, TypeVar

from adaptive_eval.core import near_best, objectives, optimal, policies, rules
from adaptive_eval.core.entries import Entry, Made
from adaptive_eval.core.objectives import ObjectiveEntry
from adaptive_eval.core.policies import Policy
from adaptive_eval.core.rules import RuleEntry

Listed = TypeVar("Listed", bound=Entry[Any])


def _by_name(*entries: Listed) -> dict[str, Listed]:
    return {entry.name: entry for entry in entries}


RULES: dict[str, RuleEntry] = _by_name(optimal.OPTIMAL, rules.PUBLISHED, rules.ANYTIME, near_best.NEAR_BEST)
POLICIES: dict[str, Entry[Policy]] = _by_name(policies.WEIGHTED, policies.UNRESOLVED_PAIRS, policies.UNIFORM)
OBJECTIVES: dict[str, ObjectiveEntry] = _by_name(
    objectives.RANKING,
    objectives.BEST,
    objectives.TOP_K,
    objectives.CHEAPEST,
    objectives.BASELINE,
    objectives.PAIRS,
    objectives.PRECISION_OF,
    objectives.THRESHOLD,
    objectives.PLACE,
)


def make(factory: Callable[..., Made], options: Mapping[str, object], context: Mapping[str, object]) -> Made:
    """Call a factory with its options and with every `context` value that it has a parameter for.

    An option wins over the context. Raises `TypeError` if the options do not match the factory's parameters.
    """
    accepted = parameter_names(factory)
    return factory(**({name: value for name, value in context.items() if name in accepted} | dict(options)))


def parameter_names(factory: Callable[..., object]) -> tuple[str, ...]:
    """Names of a factory's parameters; none for a built-in class without a signature."""
    try:
        parameters: Iterable[Parameter] = signature(factory).parameters.values()
    except ValueError:
        return ()
    return tuple(
        parameter.name
        for parameter in parameters
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    )
