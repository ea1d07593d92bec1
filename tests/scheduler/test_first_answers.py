"""A grader that fails on the first answers ends the run, and few are asked for where they are lost without a grade."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import SKILLS, Bed, FakeEndpoint, FakeGrading, plan

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.scheduler.first_answers import FIRST_ANSWERS, FIRST_IN_FLIGHT, FirstRequests
from adaptive_eval.scheduler.model_states import GradedBenchmarks, ModelStates
from adaptive_eval.scheduler.trials import Step, TrialTable
from adaptive_eval.store import AnswersLost, RunReader, events_of_kind
from adaptive_eval.supply.types import Request


def sent(bed: Bed) -> Counter[str]:
    """How many requests each model was sent."""
    return Counter({name: len(endpoint.samples) for name, endpoint in bed.endpoints.items()})


ALL = tuple(range(len(SKILLS)))


async def test_a_grader_that_fails_on_everything_is_noticed_on_the_first_answers(tmp_path: Path) -> None:
    bed = Bed(tmp_path, slots=16)
    bed.grading = FakeGrading(lambda answer, question: True)
    with pytest.raises(ConfigError, match=f"none of the first {FIRST_ANSWERS} answers could be graded"):
        await bed.start()
    before = sent(bed)
    assert sum(before.values()) <= FIRST_ANSWERS + 2 * bed.slots * len(SKILLS), "those being written, and in flight"
    assert len(bed.outcomes()) >= FIRST_ANSWERS, "every answer is stored"
    with pytest.raises(ConfigError, match="the same command then grades these answers first"):
        await bed.start()
    assert sent(bed) == before, "the next start buys nothing before they are graded"
    bed.grading = FakeGrading()
    await bed.start()
    assert None not in bed.outcomes().values()


async def test_models_whose_answers_are_lost_without_a_grade_are_asked_for_few_at_first(tmp_path: Path) -> None:
    bed = Bed(tmp_path, slots=64)
    bed.with_grades = ALL
    bed.grading = FakeGrading(lambda answer, question: True)
    with pytest.raises(ConfigError):
        await bed.start()
    assert sum(sent(bed).values()) <= FIRST_ANSWERS + FIRST_IN_FLIGHT * len(SKILLS)
    for endpoint in bed.endpoints.values():
        assert endpoint.most_in_flight <= FIRST_IN_FLIGHT
        assert len({question for question, _ in endpoint.samples[:FIRST_IN_FLIGHT]}) == FIRST_IN_FLIGHT


async def test_servers_whose_answers_are_stored_without_a_grade_are_full_from_the_beginning(tmp_path: Path) -> None:
    """Limits on the time of an answer are learnt from the first ones: few at first would make them too short. Grades of
    one model do not end the wait of another."""
    bed = Bed(tmp_path, slots=64)
    bed.with_grades = (1,)
    bed.endpoints["bob"].delay = 0.2
    loads = {name: noted_loads(bed.endpoints[name]) for name in ("ada", "bob")}
    await bed.start()
    assert loads["ada"][0] > FIRST_IN_FLIGHT >= loads["bob"][0]
    assert max(loads["bob"]) > FIRST_IN_FLIGHT


def noted_loads(endpoint: FakeEndpoint) -> list[int]:
    """How many requests were in flight at each answer."""
    loads: list[int] = []
    endpoint.fail = lambda prompt, seeds: loads.append(endpoint.in_flight)
    return loads


def test_the_same_question_is_asked_if_there_is_no_other() -> None:
    """Its first trial may be the one that cannot be graded."""
    table, models = TrialTable(1), ModelStates(("ada",), graded=GradedBenchmarks(with_grades=[0]))
    gate = FirstRequests(SimpleNamespace(trials=table, models=models))  # type: ignore[arg-type]

    def admits(question: int, *, same_question: bool) -> bool:
        check = gate.admits(0)
        return check is None or check(Request(0, question, 9, 1, 0), same_question=same_question)

    for trial in range(FIRST_IN_FLIGHT):
        assert admits(0, same_question=True) and admits(1, same_question=False)
        assert admits(0, same_question=False) is (trial == 0)
        table.move(0, 0, [trial], Step.WANTED)
        table.move(0, 0, [trial], Step.IN_FLIGHT)
    assert not admits(0, same_question=True) and not admits(1, same_question=False)
    table.move(0, 0, [0], Step.LOST)
    assert admits(0, same_question=True)
    models.graded.add(0, 0)
    assert gate.admits(0) is None


async def test_a_resume_has_seen_grades(tmp_path: Path) -> None:
    bed = Bed(tmp_path, plan(budget=Budget(trials=60)), slots=64)
    bed.with_grades = ALL
    await bed.start()
    bed.plan = plan(budget=Budget(trials=400))
    for endpoint in bed.endpoints.values():
        endpoint.most_in_flight, endpoint.delay = 0, 0.2
    await bed.start()
    assert max(endpoint.most_in_flight for endpoint in bed.endpoints.values()) > FIRST_IN_FLIGHT


def test_a_grader_is_known_by_its_benchmark_and_where_scores_come_with_answers_by_its_model() -> None:
    graded = GradedBenchmarks(["sums", "sums", "code"], with_grades=[1])
    assert graded.is_awaited(1) and not graded.is_awaited(0), "answers of the other are stored without a grade"
    graded.add(0, 1)
    graded.add(0, 2)
    assert graded.has_grade("sums") and graded.has_grade("code") and not graded.has_grade("sums", 1)
    graded.add(1, 0)
    assert graded.has_grade("sums", 1) and graded.is_awaited(1)
    graded.add(1, 2)
    assert not graded.is_awaited(1)
    alone = GradedBenchmarks(with_grades=[3])
    alone.add(3, 5)
    assert not alone.is_awaited(3)


async def test_answers_in_vain_count_at_what_they_used(tmp_path: Path) -> None:
    """A sample of Inspect whose scorer fails has used tokens that its provider reports."""
    bed = Bed(tmp_path)
    used = Answer("", "stop", 1, "fake", 0.5, prompt_tokens=700, completion_tokens=300)
    ada = bed.endpoints["ada"]
    stats = type(ada).stats

    def more(self: object) -> object:
        known = stats.fget(self)  # type: ignore[attr-defined]
        wasted = (used,) * min(2, len(ada.samples)) if self is ada else ()
        unknown = len(ada.samples) > 3 if self is ada else False
        return type(known)(**{**_fields(known), "lost": len(wasted) + unknown, "in_vain": wasted})

    ada.__class__ = type("Wasteful", (type(ada),), {"stats": property(more)})
    await bed.start()
    with RunReader.intact(tmp_path) as reader:
        lost = [event for event in events_of_kind(reader.events(), AnswersLost) if event.model == "ada"]
    known = [event for event in lost if not event.estimated]
    assert sum(event.answers for event in known) == 2
    assert Cost(sum(event.tokens for event in known)) == Cost(2000)
    assert [event.answers for event in lost if event.estimated] == [1], "of others nothing is known"


def _fields(stats: object) -> dict[str, object]:
    return {name: getattr(stats, name) for name in stats.__dataclass_fields__}  # type: ignore[attr-defined]
