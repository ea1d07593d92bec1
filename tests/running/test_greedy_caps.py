"""Caps hold with greedy answers before the run, whatever servers say and lose; whenever it is killed it finds the same.

What was generated, by the run and by its greedy answers, is counted at the servers.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, seed
from judged_spending import JUDGE, JudgedSpender
from ledger_check import Row, Trial, stored_rows
from lives import QUESTIONS, SKILLS, Fate, Start
from spending import LOW, RESET, SLOTS
from test_judged_caps import JUDGED, judged_config, spending_keeps_to
from thoroughness import examples, only_drawn

from adaptive_eval.config.run import PriorEvidenceConfig
from adaptive_eval.store.database import is_run


@dataclass
class GreedyLife:
    """The starts of one run, and what its files and those of its greedy answers say in the end."""

    world: JudgedSpender
    rows: Mapping[Trial, Row]
    greedy: Mapping[Trial, Row]
    reason: str | None


def lead_greedy(
    budget: Mapping[str, float],
    slots: int = SLOTS,
    votes: int = 1,
    structured: object = None,
    starts: tuple[Start, ...] = (),
    **world: Any,
) -> GreedyLife:
    """A run with these starts, and then one that is left alone, within its caps; greedy answers come first."""
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder, servers, ended = Path(name), JudgedSpender(**world), None
        for start in (*starts, Start()):
            config = judged_config(folder, budget, slots, votes, structured)
            config = config.model_copy(update={"prior_evidence": PriorEvidenceConfig(greedy=True)})
            ended = servers.run(config, folder / "run", start)
        places = folder / "run", folder / "run" / "greedy"
        rows, greedy = (stored_rows(one) if is_run(one) else {} for one in places)
        spending_keeps_to(budget, servers, slots)
        assert set(greedy) <= {(model, key, 0) for model in SKILLS for key in QUESTIONS}
        for row in (*rows.values(), *greedy.values()):
            assert row.category in (None, int(row.text == "right")), "a verdict that nobody gave"
        return GreedyLife(servers, rows, greedy, None if ended is None else str(ended.reason))


GREEDY = {key: how for key, how in JUDGED.items() if key != "regrades"}


def check_greedy(**chosen: Any) -> None:
    event(f"ended: {lead_greedy(**chosen).reason}")


@seed(1)
@only_drawn(examples(2))
@given(**GREEDY)
def test_some_budgets_hold_with_greedy_answers(**chosen: Any) -> None:
    check_greedy(**chosen)


@pytest.mark.parametrize(
    "number", [pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.release)]
)
def test_many_budgets_hold_with_greedy_answers(number: int) -> None:
    seed(number)(only_drawn(25)(given(**GREEDY)(check_greedy)))()


CAP = 200_000
LATER = [pytest.param(50, marks=pytest.mark.slow), pytest.param(140, marks=pytest.mark.slow)]


@pytest.mark.parametrize("at", [90, *LATER])
def test_a_kill_under_a_cap_changes_no_verdict(at: int) -> None:
    """Servers that say too little and lose replies, a kill, and a cap that ends the run: more than one, in one life."""
    wild = {"judge_says": LOW, "judge_faults": {RESET: 0.05}, "faults": {RESET: 0.05}}
    life = lead_greedy({"tokens": CAP}, starts=(Start(Fate.KILL, at),), **wild)
    assert life.reason == "budget" and life.rows and life.greedy


@cache
def left_alone() -> GreedyLife:
    return lead_greedy({})


MOMENTS: list[Any] = [70, *(pytest.param(at, marks=pytest.mark.slow) for at in range(5, 240, 80))]
MOMENTS += [pytest.param(at, marks=pytest.mark.release) for at in range(1, 240, 6)]


@pytest.mark.parametrize("at", MOMENTS)
def test_whenever_it_is_killed_a_run_finds_the_same(at: int) -> None:
    """While greedy answers come, after them, in the run itself, and after its end."""
    whole, killed = left_alone(), lead_greedy({}, starts=(Start(Fate.KILL, at),))
    assert killed.rows == whole.rows and killed.greedy == whole.greedy and killed.reason == whole.reason
    assert len(whole.greedy) == len(SKILLS) * len(QUESTIONS)
    answers = [sum(one.model != JUDGE for one in life.world.attempts) for life in (whole, killed)]
    assert answers[1] <= answers[0] + len(SKILLS) * SLOTS, "what is stored is not asked for again"
