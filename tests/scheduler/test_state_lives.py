"""Whatever befalls a run, on its pure state: the same looks as undisturbed, caps that hold, sums that are right."""

import random
from collections import Counter

import pytest
from pure_lives import SKILLS, Disk, Endpoints, Place, Setting, Start
from thoroughness import THOROUGH

from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import Reason

LIVES = 20


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
    assert len(ends) == 1
    assert disk.looks == reference.disk.looks
    assert setting.pace.held or categories(reference.disk).items() <= categories(disk).items()
    return "compared"


def life_with_losses(number: int) -> None:
    """A life in which little is left under a cap, and whose looks and end are those of whoever replays it."""
    chance = random.Random(number)
    budget = Budget(tokens=chance.randrange(300, 1500))
    setting = Setting.drawn(chance, number)._replace(budget=budget, judged=chance.random() < 0.3)
    disk, endpoints = Disk(), Endpoints(number)
    is_over = False
    while not is_over:
        dies_at = chance.choice([None, chance.randrange(1, 60), chance.randrange(1, 200)])
        start = Start(setting, disk, endpoints, chance, dies_at=dies_at, trouble=0.15, only_losses=True)
        is_over = start.run()  # it compares its first looks with those that are stored
        if start.disturbed:
            return
    again = Start(setting, disk, endpoints, chance)
    assert again.run()
    assert (again.controller.looks, again.controller.finished) == (start.controller.looks, start.controller.finished)


def categories(disk: Disk) -> dict[Place, int | None]:
    return {place: one.category for place, one in disk.rows.items()}


def test_some_lives_of_the_state() -> None:
    found = Counter(whole_life(number) for number in range(LIVES))
    assert found["compared"] > LIVES // 3 and found["capped"]


@pytest.mark.parametrize("number", [5, 14, 17, 22])
def test_looks_of_a_life_with_losses_under_a_cap_are_replayed(number: int) -> None:
    life_with_losses(number)


@pytest.mark.slow
def test_looks_of_more_lives_with_losses_under_a_cap_are_replayed() -> None:
    for number in range(100):
        life_with_losses(number)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(2))
def test_more_lives_of_the_state(chunk: int) -> None:
    lives = 50_000 if THOROUGH else 150
    for number in range(chunk * lives, (chunk + 1) * lives):
        whole_life(number + LIVES)
