"""Caps hold where a judge compares with the answers of a model, whatever servers say and lose and whoever kills.

What was generated is counted at the servers; what was compared with what is worked out from the two databases by hand.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, seed
from judged_spending import JUDGE, JudgedSpender
from ledger_check import Row, Trial, stored_rows
from lives import QUESTIONS, SKILLS, Start
from spending import MAX_TOKENS, SLOTS
from test_judged_caps import JUDGED, judged_config, spending_keeps_to
from thoroughness import examples, only_drawn

from adaptive_eval.config.load import load_config

BASELINE, DEPTH = "bob", 2
BETTER, TIE, WORSE = range(3)


@dataclass
class ComparedLife:
    """The starts of one run, and what its files and those of the earlier one say in the end."""

    world: JudgedSpender
    budget: Mapping[str, float]
    slots: int
    rows: Mapping[Trial, Row]
    others: Mapping[Trial, Row]
    """What they are compared with."""
    reason: str | None

    def expected(self, trial: Trial) -> int:
        """What a trial is beside the one of its number."""
        _, question, number = trial
        own, other = self.rows[trial].text, self.others[BASELINE, question, number % DEPTH].text
        return TIE if own == other else BETTER if own == "right" else WORSE


def earlier_run(folder: Path) -> Path:
    """A run with seeds of its own, whose answers are compared with."""
    config = judged_config(folder, {}, SLOTS, 1, None)
    models = [{"name": BASELINE, "base_url": "http://127.0.0.1:9/v1"}]
    document: dict[str, Any] = {
        "questions": "questions.jsonl",
        "seed": config.seed + 1,
        "models": models,
        "sampling": {"max_tokens": MAX_TOKENS},
        "grader": "exact",
        "trials": {"min": DEPTH, "max": DEPTH},
        "objective": {"kind": "threshold", "value": 0.5},
    }
    (folder / "earlier.yaml").write_text(json.dumps(document))
    assert JudgedSpender().run(load_config(folder / "earlier.yaml"), folder / "earlier", Start()) is not None
    return folder / "earlier"


def lead_compared(
    budget: Mapping[str, float],
    slots: int = SLOTS,
    votes: int = 1,
    structured: object = None,
    starts: tuple[Start, ...] = (),
    **world: Any,
) -> ComparedLife:
    """A run with these starts, and then one that is left alone."""
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder, servers, ended = Path(name), JudgedSpender(**world), None
        first = earlier_run(folder)
        against = {"run": str(first), "model": BASELINE}
        for start in (*starts, Start()):
            config = judged_config(folder, budget, slots, votes, structured, compare_to=against)
            ended = servers.run(config, folder / "run", start)
        reason = None if ended is None else str(ended.reason)
        rows, others = stored_rows(folder / "run"), stored_rows(first)
        assert set(others) == {(BASELINE, key, number) for key in QUESTIONS for number in range(DEPTH)}
        return ComparedLife(servers, budget, slots, rows, others, reason)


def check_caps(life: ComparedLife) -> None:
    """The budget is kept to, also in trials, and nothing is graded that no judge has said."""
    spending_keeps_to(life.budget, life.world, life.slots)
    assert len(life.rows) <= life.budget.get("trials", float("inf"))
    for trial, row in life.rows.items():
        assert row.category in (None, life.expected(trial)), "a verdict that nobody gave"


COMPARED = {key: how for key, how in JUDGED.items() if key != "regrades"}


def check_compared(**chosen: Any) -> None:
    life = lead_compared(**chosen)
    event(f"ended: {life.reason}")
    check_caps(life)


@pytest.mark.slow
@seed(1)
@only_drawn(examples(2))
@given(**COMPARED)
def test_some_budgets_hold_with_comparisons(**chosen: Any) -> None:
    check_compared(**chosen)


@pytest.mark.parametrize(
    "number", [pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.release)]
)
def test_many_budgets_hold_with_comparisons(number: int) -> None:
    seed(number)(only_drawn(25)(given(**COMPARED)(check_compared)))()


CAP, LARGE = 200_000, 600_000
LATER = [pytest.param(50, marks=pytest.mark.slow), pytest.param(140, marks=pytest.mark.slow)]


@pytest.mark.slow
def test_a_verdict_takes_two_requests_a_vote_and_a_tie_word_for_word_takes_none() -> None:
    life = lead_compared({"tokens": LARGE}, votes=3)
    check_caps(life)
    graded = Counter(row.category for row in life.rows.values())
    asked = sum(one.model == JUDGE for one in life.world.attempts)
    assert set(SKILLS) == {model for model, _, _ in life.rows} and None not in graded
    assert asked == 2 * 3 * (graded[BETTER] + graded[WORSE]) > 0
