"""The registry describes each rule, policy and objective as it behaves."""

import string

import numpy as np
import pytest

from adaptive_eval import core
from adaptive_eval.core.entries import Entry, Option
from adaptive_eval.core.objectives import ObjectiveEntry
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES, make, parameter_names
from adaptive_eval.core.rules import Correctable, Extendable, RuleEntry, ZScore, has_error_left, is_giving_up
from adaptive_eval.testing.rules import evidence_cases

MODELS = ("model-a", "model-b", "model-c")
EVERY: list[Entry[object]] = [*RULES.values(), *POLICIES.values(), *OBJECTIVES.values()]  # type: ignore[list-item]
KNOWN = {"confidence": 0.9, "start": 0.1, "models": MODELS, "recorded": frozenset({0})}
PLACES = {"delta", "horizon", "wrong", "tie", "whose"}


def examples(entry: Entry[object]) -> dict[str, object]:
    return {option.name: option.example for option in entry.options}


def needed(entry: Entry[object]) -> dict[str, object]:
    return {option.name: option.example for option in entry.options if option.default is None}


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: entry.name)
def test_each_entry_is_built_from_its_options(entry: Entry[object]) -> None:
    assert make(entry.make, examples(entry), KNOWN) is not None
    assert make(entry.make, needed(entry), KNOWN) is not None
    assert set(parameter_names(entry.make)) >= {option.name for option in entry.options}


@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: entry.name)
def test_entry_texts_name_only_existing_options(entry: Entry[object]) -> None:
    text = entry.description + (entry.promise if isinstance(entry, RuleEntry) else "")
    named = {name for _, name, _, _ in string.Formatter().parse(text) if name}
    assert named <= examples(entry).keys() | (PLACES if isinstance(entry, RuleEntry) else set())
    assert entry.summary and entry.description


@pytest.mark.parametrize("entry", RULES.values(), ids=lambda entry: entry.name)
def test_a_rule_is_what_its_entry_says(entry: RuleEntry) -> None:
    rule = make(entry.make, {}, KNOWN)
    assert isinstance(getattr(rule, "ties", rule), Correctable) == entry.correctable
    assert is_giving_up(rule) == entry.gives_up
    assert set(entry.only_for) <= OBJECTIVES.keys()
    assert bool(entry.instead) == bool(entry.only_for)
    on = next(case for case in evidence_cases() if (case.information > 0.0).any())
    assert isinstance(rule, Extendable) == (entry.correctable or entry.lenient), (
        "what survives looks knows what another horizon does"
    )
    raised = rule.extended([on], on, 0.0) if isinstance(rule, Extendable) else rule
    assert has_error_left(raised) == (entry.gives_up or entry.lenient)
    if isinstance(rule, Correctable):
        assert rule.confidence == KNOWN["confidence"]


@pytest.mark.parametrize("entry", OBJECTIVES.values(), ids=lambda entry: entry.name)
def test_an_objective_is_what_its_entry_says(entry: ObjectiveEntry) -> None:
    objective = make(entry.make, examples(entry), KNOWN)
    assert objective.compares == entry.compares
    assert (objective.rule is None) == (entry.own_rule is None)
    for order in (np.arange(4), np.array([2, 0, 3, 1])):
        next_ones = np.stack([order[:-1], order[1:]], axis=1)
        assert np.array_equal(objective.comparisons(order), next_ones) == entry.in_order


def test_one_option_key_has_one_meaning() -> None:
    for entries in (RULES, POLICIES, OBJECTIVES):
        options: dict[str, Option] = {}
        for entry in entries.values():
            for option in entry.options:
                assert options.setdefault(option.name, option) == option
    assert len({entry.name for entry in EVERY}) == len(EVERY)


def test_the_core_exports_everything_a_harness_needs() -> None:
    assert all(hasattr(core, name) for name in core.__all__)
    assert set(core.__all__) == set(core._HOME_OF)
    assert sorted(core.__all__) == sorted(set(core.__all__))
    made = [make(entry.make, examples(entry), KNOWN) for entry in EVERY]
    assert all(getattr(core, type(value).__name__) is type(value) for value in made)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = core.Nothing  # type: ignore[attr-defined]


def test_a_line_in_the_registry_is_all_that_a_new_rule_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unheard(ZScore):
        pass

    entry = RuleEntry(name="unheard", make=Unheard, summary="", description="", promise="", correctable=True)
    monkeypatch.setitem(RULES, "unheard", entry)
    assert core.Unheard is Unheard  # type: ignore[attr-defined]
    del core.Unheard  # type: ignore[attr-defined]
