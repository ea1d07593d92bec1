"""What is kept in few bytes is what a set and a dict would keep."""

import random

from adaptive_eval.store import compact
from adaptive_eval.store.compact import Column, NumberSet, question_number


def test_a_number_is_among_them_once_it_was_added() -> None:
    rng, found, known = random.Random(2), NumberSet(), set[int]()
    drawn = [rng.choice([rng.randrange(-(2**63), 2**63), rng.randrange(800)]) for _ in range(6 * compact.MOST_RECENT)]
    for number in [*drawn, *drawn[:300], 2**63 - 1, -(2**63), 0]:
        assert found.add(number) == (number in known)
        known.add(number)
        assert len(found) == len(known)


def test_a_column_has_minus_one_where_nothing_was_set() -> None:
    rng, column, known = random.Random(3), Column("q"), dict[int, int]()
    for _ in range(500):
        at = rng.randrange(400)
        known[at] = rng.randrange(2**62)
        column[at] = known[at]
    assert [column[at] for at in range(500)] == [known.get(at, -1) for at in range(500)]


def test_a_question_has_one_number() -> None:
    names = [f"compact-{at}" for at in range(20)]
    numbers = list(map(question_number, names))
    assert len(set(numbers)) == 20 and list(map(question_number, reversed(names))) == numbers[::-1]
