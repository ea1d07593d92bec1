"""Every pair of features in some life, each life judged by what is true and what the servers counted.

`factors.py` says what a run can have, `covering.py` makes the rows, `life.py` leads a life, `checker.py` judges it. A
row that the program refuses is refused before anything is bought. Pairs are among the long tests; before a release
triples are brought together, other supplies are asked, and faults are planted.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from itertools import chain, product
from math import log
from pathlib import Path

import numpy as np
import pytest
from checker import Fault, faults, refusal_faults
from commands import PLANT, fork_server
from covering import Row, Space, covering_array
from factors import FACTORS, MOOT, QUESTIONS, REFUSED, Conflict, make_setup
from life import Life, lead_life
from planted_faults import PLANTS

from adaptive_eval.core.answer_alarms import FALSE_ALARM, log_chances
from adaptive_eval.core.answer_kinds import AnswerKind

ELSEWHERE = {"inspect": pytest.mark.slow, "lm_eval": pytest.mark.harness, "ray": pytest.mark.ray}
"""Supplies that take long, or need another environment."""
CONFLICTS = (*REFUSED, *MOOT)
USUAL = [supply for supply in FACTORS["supply"] if supply not in ELSEWHERE]
SPACE = Space({**FACTORS, "supply": USUAL}, CONFLICTS)
WITH_ALL_SUPPLIES = Space(FACTORS, CONFLICTS)
PARTS, PARTS_ELSEWHERE, PARTS_OF_TRIPLES = 22, 5, 40
"""Tests into which rows are divided: rows are made when a test runs, not whenever tests are collected."""


@cache
def pairs() -> list[Row]:
    """Rows with every pair of levels: some 40."""
    return covering_array(SPACE)


@cache
def rows_of(supply: str) -> list[Row]:
    """Rows with every level that goes with this supply."""
    return covering_array(Space({**FACTORS, "supply": [supply]}, CONFLICTS), within=("supply", supply))


@cache
def triples() -> list[Row]:
    """Rows with every triple of levels: some hundreds."""
    return covering_array(SPACE, strength=3)


@pytest.fixture(scope="session")
def commands_address() -> Iterator[str]:
    """Where commands are forked."""
    with fork_server() as address:
        yield address


@pytest.fixture
def lead(tmp_path: Path, commands_address: str, request: pytest.FixtureRequest) -> Callable[..., Life]:
    """Leads the life of a row, in a folder of its own."""

    def lead(row: Row, **environment: str) -> Life:
        ray = request.getfixturevalue("ray_address") if row["supply"] == "ray" else ""
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return lead_life(row, folder, commands_address, ray=ray, environment=environment)

    return lead


@pytest.fixture
def judge(lead: Callable[..., Life]) -> Callable[[Iterable[Row]], None]:
    """Leads the lives of some rows, which must all be sound."""

    def judge(rows: Iterable[Row]) -> None:
        lives = map(lead, rows)
        red = [text for life in lives if (text := report(life, faults(life)))]
        assert not red, "\n\n".join(red)

    return judge


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """A small Ray cluster."""
    from raylets import Raylets

    with closing(Raylets()) as raylets:
        raylets.add()
        yield raylets.address


def named(row: Mapping[str, str]) -> str:
    """The levels of a row that are not plain."""
    return " ".join(f"{name}={level}" for name, level in row.items() if level != FACTORS[name][0])


def report(life: Life, problems: Sequence[Fault]) -> str:
    """What is wrong in a life; empty if nothing is."""
    return "\n".join((f"{life.folder}: {named(life.row)}", *map(str, problems))) if problems else ""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_pairs(part: int, judge: Callable[[Iterable[Row]], None]) -> None:
    judge(pairs()[part::PARTS])


@pytest.mark.release
@pytest.mark.parametrize("supply", [pytest.param(supply, marks=mark) for supply, mark in ELSEWHERE.items()])
@pytest.mark.parametrize("part", range(PARTS_ELSEWHERE))
def test_pairs_elsewhere(supply: str, part: int, judge: Callable[[Iterable[Row]], None]) -> None:
    judge(rows_of(supply)[part::PARTS_ELSEWHERE])


@pytest.mark.release
@pytest.mark.parametrize("part", range(PARTS_OF_TRIPLES))
def test_triples(part: int, judge: Callable[[Iterable[Row]], None]) -> None:
    judge(triples()[part::PARTS_OF_TRIPLES])


@pytest.mark.slow
@pytest.mark.parametrize("conflict", REFUSED, ids=[conflict.why.replace(" ", "_") for conflict in REFUSED])
def test_refused(conflict: Conflict, lead: Callable[..., Life]) -> None:
    """All rows with a combination that the program refuses, which are plain otherwise."""
    others = Space(SPACE.factors, [other for other in CONFLICTS if other is not conflict])
    red = []
    for levels in product(*conflict.levels.values()):
        given = dict(zip(conflict.levels, levels, strict=True))
        if given.get("supply", USUAL[0]) in USUAL and (row := others.completed(given)) is not None:
            red.append(report(life := lead(row), refusal_faults(life, conflict.why, conflict.stage)))
    assert not any(red), "\n\n".join(filter(None, red))


@pytest.mark.release
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=ELSEWHERE.get(plant.levels.get("supply", ""), pytest.mark.slow))
        for name, plant in PLANTS.items()
    ],
)
def test_planted_faults_are_seen(name: str, lead: Callable[..., Life]) -> None:
    row = WITH_ALL_SUPPLIES.completed(PLANTS[name].levels)
    assert row is not None
    seen = faults(life := lead(row, **{PLANT: name}))
    assert PLANTS[name].seen_as in {fault.property for fault in seen}, report(life, seen)


@pytest.mark.slow
def test_planted_faults_change_what_there_is() -> None:
    """Where nothing has the name that one replaces, it cannot be planted, which else only a release would show."""
    plant_all = "from planted_faults import PLANTS, plant; [*map(plant, PLANTS)]"
    subprocess.run([sys.executable, "-c", plant_all], cwd=Path(__file__).parent, check=True)


@pytest.mark.slow
def test_all_pairs_are_in_some_row() -> None:
    covered = {frozenset(pair) for row in pairs() for pair in product(row.items(), repeat=2)}
    for numbers in SPACE.combinations(2):
        assert frozenset(SPACE.pairs[number] for number in numbers) in covered
    for row in chain(pairs(), *map(rows_of, ELSEWHERE)):
        assert not any(conflict.holds(row) for conflict in CONFLICTS)


@pytest.mark.parametrize("samples", FACTORS["samples_per_request"])
def test_trouble_from_the_middle_is_certain_after_the_first_round(samples: str) -> None:
    """Otherwise no alarm could keep a verdict from being against the truth: too few answers are as they should be."""
    row = SPACE.completed({"answers": "empty", "samples_per_request": samples})
    assert row is not None
    setup, together = make_setup(row), int(samples)
    passes = setup.config["trials"]["min"]
    order = [
        (first + at, question)
        for first in range(0, passes, together)
        for question in range(QUESTIONS)
        for at in range(together)
    ]
    empty = np.zeros((passes, QUESTIONS), dtype=np.int64)
    for place in order[setup.world.middle :]:
        empty[place] = 1
    moments = np.arange(1, passes)
    likeliest = log_chances(np.ones_like(empty), empty, moments).min()
    hypotheses = len(setup.models) * len(AnswerKind) * 2 * len(moments)
    assert likeliest < log(FALSE_ALARM / hypotheses)
