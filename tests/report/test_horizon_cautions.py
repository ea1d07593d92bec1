"""What a change of the horizon costs is derived from the rule itself, built-in or not."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from adaptive_eval.core import Anytime, Extension, Rule, ZScore
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.notes import Change, SettingsChanged
from adaptive_eval.report.warnings import decision_cautions, horizon_cautions

NOTHING = np.empty(0)


@dataclass(frozen=True)
class Mute(ZScore):
    """A custom rule with p-values, which says nothing of a changed horizon."""

    confidence: float = 0.95

    def p_value(self, evidence: Any, sign: int) -> Any:
        return np.ones_like(evidence.z)

    def at_level(self, alpha: float) -> "Mute":
        return self


def horizon_caution(rule: Rule, extension: Extension) -> str:
    (caution,) = horizon_cautions(rule, [extension], [])
    assert caution.text.startswith("trials.max was raised from 8 to 32 after look 5: ")
    return caution.text


@pytest.mark.parametrize(
    ("rule", "ending"),
    [
        (Anytime(), "the rule does not depend on it, and its promise holds"),
        (ZScore(), "it is unknown whether what the rule promises about repeated looks still holds"),
        (Mute(), "it is unknown whether what the rule promises about repeated looks still holds"),
    ],
)
def test_a_caution_explains_a_rule_without_error_left_to_spend(rule: Rule, ending: str) -> None:
    assert horizon_caution(rule, Extension(8, 32, 5, False, NOTHING, NOTHING, NOTHING)).endswith(ending)


def test_a_caution_says_that_the_error_is_what_is_left() -> None:
    remaining, was, bound = np.array([0.04, 0.0, 0.06]), np.full(3, 2.113), np.array([2.4, np.inf, 2.61])
    caution = horizon_caution(Sequential(), Extension(8, 32, 5, True, remaining, was, bound))
    assert "the promise holds, and undecided comparisons go on with what is left of their allowed error" in caution


@pytest.mark.parametrize(("looks", "said"), [(1, "1 look"), (2, "2 looks")])
def test_looks_before_a_change_are_counted(looks: int, said: str) -> None:
    (caution,) = decision_cautions([SettingsChanged(9, looks, (Change("stopping.delta", 0.1, 0.0),))])
    assert caution.text.startswith(f"changed after {said} (")


def test_the_gate_of_a_benchmark_that_is_changed_after_a_look_is_mentioned() -> None:
    was, now = ([{"name": "easy", "weight": 2.0, "gate": gate}] for gate in (0.05, 0.5))
    (caution,) = decision_cautions([SettingsChanged(9, 1, (Change("benchmarks", was, now),))])
    assert "benchmarks.easy.gate: 0.05 → 0.5; later looks" in caution.text
