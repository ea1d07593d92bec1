"""Whatever befalls a run, on its pure state: the same looks as undisturbed, caps that hold, sums that are right."""

import random
from collections import Counter

import pytest
from pure_lives import SKILLS, Disk, Endpoints, Place, Setting, Start
from thoroughness import THOROUGH

from adaptive_eval.core.settings import Budget, Pace, Trials
from adaptive_eval.core.types import Reason
from adaptive_eval.store import ThresholdsFrozen, events_of_kind

LIVES = 20
BEYOND_ITS_ROUNDS = 8926
"""A life under a cap in which answers that no round has asked for wait for thresholds."""
DIES_BEFORE_A_CATEGORY = 4555
"""A life that dies with all its trials on disk, after thresholds were fitted and a look was taken."""


def whole_life(number: int) -> str:
    """One life of a run, and what it was like."""
    chance = random.Random(number)
    setting = Setting.drawn(chance, number)
    disk, endpoints = Disk(), Endpoints(number)
    broken = False
    for _ in range(chance.randrange(5)):
        endpoints.broken = frozenset(chance.choice([[], [], [], [], ["q0"], ["q1"]]))
        broken = broken or bool(endpoints.broken)
        models = tuple(SKILLS) if chance.random() < 0.8 else tuple(chance.sample(sorted(SKILLS), 2))
        Start(
            setting,
            disk,
            endpoints,
            chance,
            models,
            dies_at=chance.choice([None, chance.randrange(1, 30), chance.randrange(1, 400)]),
            stops_at=chance.choice([None, None, chance.randrange(1, 300)]),
            trouble=chance.choice([0.0, 0.0, 0.1]),
        ).run()
    endpoints.broken = frozenset()
    last = Start(setting, disk, endpoints, chance)
    assert last.run()
    reference = Start(setting, Disk(), Endpoints(number), random.Random(0))
    assert reference.run()
    assert last.controller.looks == disk.looks
    ends = {last.controller.finished, reference.controller.finished}
    if Reason.BUDGET in ends or setting.tight:
        return "capped"
    assert not last.disturbed
    if broken and setting.judged and setting.capped:  # what came to nothing is in a trial's price, which shares go by
        return "at other prices"
    if thresholds(disk) != thresholds(reference.disk):
        return "fitted on others"
    assert len(ends) == 1
    assert disk.looks == reference.disk.looks
    assert setting.pace.held or categories(reference.disk).items() <= categories(disk).items()
    return "compared"


def categories(disk: Disk) -> dict[Place, int | None]:
    return {place: one.category for place, one in disk.rows.items()}


def thresholds(disk: Disk) -> list[ThresholdsFrozen]:
    return events_of_kind(disk.log, ThresholdsFrozen)


def test_some_lives_of_the_state() -> None:
    found = Counter(whole_life(number) for number in range(LIVES))
    assert found["compared"] > LIVES // 3 and found["capped"]


def test_answers_of_a_model_that_was_removed_wait_for_thresholds_until_it_comes_back() -> None:
    setting = Setting(7, False, True, slots=3, samples=1, trials=Trials(2, 4), pace=Pace(), budget=Budget())
    disk, endpoints, chance = Disk(), Endpoints(7), random.Random(7)
    Start(setting, disk, endpoints, chance, dies_at=20).run()
    waiting = {place for place, one in disk.rows.items() if one.awaits_thresholds and place[0] == "cyd"}
    assert waiting and not thresholds(disk)
    without = Start(setting, disk, endpoints, chance, models=("ada", "bob"))
    assert without.run() and thresholds(disk)
    assert all(disk.rows[place].awaits_thresholds for place in waiting)
    back = Start(setting, disk, endpoints, chance)
    assert back.run() and not any(one.awaits_thresholds for one in disk.rows.values())


@pytest.mark.parametrize(("number", "cap", "dies_at"), [(2, 24, 20), (3, 20, 14)])
def test_a_start_that_categorises_stored_answers_takes_the_looks_of_the_next(
    number: int, cap: int, dies_at: int
) -> None:
    pace, budget = Pace(lookahead=2), Budget(trials=cap)
    setting = Setting(number, False, True, slots=16, samples=1, trials=Trials(1, 4), pace=pace, budget=budget)
    disk, endpoints, chance = Disk(), Endpoints(number), random.Random(number)
    Start(setting, disk, endpoints, chance, ("ada", "bob"), dies_at=dies_at).run()
    assert Start(setting, disk, endpoints, chance, ("bob", "cyd")).run() and thresholds(disk)
    assert any(one.awaits_thresholds for one in disk.rows.values())
    back, again = Start(setting, disk, endpoints, chance), Start(setting, disk, endpoints, chance)
    assert back.run() and again.run()
    assert repr(back.controller.looks) == repr(again.controller.looks) and back.controller.looks


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(2))
def test_more_lives_of_the_state(chunk: int) -> None:
    lives = 50_000 if THOROUGH else 150
    for number in range(chunk * lives, (chunk + 1) * lives):
        whole_life(number + LIVES)


def test_caps_count_answers_that_wait_for_thresholds_and_that_no_round_has_asked_for() -> None:
    assert whole_life(BEYOND_ITS_ROUNDS) == "capped"


def test_a_start_that_dies_before_an_answer_has_its_category_takes_its_looks_again() -> None:
    assert whole_life(DIES_BEFORE_A_CATEGORY) == "compared"
