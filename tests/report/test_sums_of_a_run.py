"""What a reader sums, counts and finds among stored answers."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from two_by_two import HEADER, LARGE, Q1, Q2, SMALL, make_trial

from adaptive_eval.base.roster import Roster
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.records import Dropped
from adaptive_eval.machine.trial import JUDGING, Trial
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.write import RunStore

CELLS = [(model, question) for question in (Q1, Q2) for model in (SMALL, LARGE)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with closing(RunStore.open(tmp_path / "run", HEADER).store) as store:
        yield store


@pytest.fixture
def reader(store: RunStore) -> Iterator[RunReader]:
    with closing(RunReader.open(store.directory)) as reader:
        yield reader


def free(*arguments: int, **named: object) -> Trial:
    """A trial whose grade has cost nothing."""
    return make_trial(*arguments, verdict=NO_COST, **named)  # type: ignore[arg-type]


def test_the_trials_of_one_model_and_question_are_read_alone(store: RunStore, reader: RunReader) -> None:
    store.append(*(make_trial(*cell, number) for number in (2, 0, 1) for cell in CELLS))
    trials = list(reader.cell("large", "q2"))
    assert [(trial.model, trial.question, trial.trial) for trial in trials] == [
        ("large", "q2", number) for number in range(3)
    ]
    assert trials[0].answer == make_trial(LARGE, Q2, 0).answer
    assert [trial.trial for trial in reader.cell("large", "q2", after=1)] == [2]
    assert list(reader.cell("large", "nothing")) == []


def test_sums_from_any_trial_on_come_to_the_whole(store: RunStore, reader: RunReader) -> None:
    trials = [free(*cell, number) for number in range(4) for cell in CELLS]
    trials[3] = free(LARGE, Q2, 0, error="too slow")
    store.append(*trials[:5])
    store.append(*trials[5:], make_trial(SMALL, Q1, 4, state=JUDGING)._replace(category=None, grade=None))
    all_sums, later = reader.sums(), reader.sums(5)
    assert [(row.model, row.trials) for row in all_sums] == [("small", 8), ("large", 8)]
    assert sum(row.trials for row in later) == 11 and max(row.last for row in later) == 16
    assert (all_sums[0].tokens, all_sums[0].latency, all_sums[0].retries) == (8 * 33, 8 * 1.25, 8)
    assert (all_sums[0].timed, all_sums[0].ttft) == (8, 4.0)
    assert all_sums[0].traffic().ttft == 0.5
    roster = Roster.of(["large", "small", "new"], ["q2", "q1"])
    counts, since = reader.counts(roster, 2), reader.counts(roster, 2, after=5)
    assert counts.shape == (3, 2, 2) and (counts.sum(), since.sum(), counts[0, 0].sum()) == (15, 11, 3)
    assert counts[2].sum() == 0 and reader.counts(Roster.of(["small"], ["q1", "q3"]), 1).shape == (1, 2, 1)


def test_what_a_judge_has_used_is_summed(store: RunStore, reader: RunReader) -> None:
    used = [{"judge_prompt_tokens": 10, "judge_completion_tokens": 2 * n, "judge_usd": 0.5} for n in range(3)]
    assert reader.judge_use() is None
    for n, charges in enumerate(used):
        cost = Cost(10 + 2 * n, 0.5, 0.0)
        signals = {**charges, "note": 'a "judge_usd":7, of \0 its own'}
        store.append(make_trial(number=n, signals=signals)._replace(verdict=cost))
    store.append(free(number=3))
    use, by_model = reader.judge_use(), reader.grading_uses()
    assert use is not None and (use.answers, use.prompt_tokens, use.completion_tokens, use.usd) == (3, 30, 6, 1.5)
    assert (by_model["small"].answers, by_model["small"].cost.tokens) == (3, 36)


def test_comparisons_are_counted_by_how_they_came_out(store: RunStore, reader: RunReader) -> None:
    assert reader.comparisons() == []
    for number, (verdict, depends, towards) in enumerate(
        [("tie", 1.0, -0.5), ("better", 0.0, 0.0), ("tie", 1.0, -0.5), ("tie", 0.0, 0.0)]
    ):
        signals = {"verdict": verdict, "order_dependent": depends, "prefers_first": towards}
        store.append(make_trial(number=number, signals=signals))
    store.append(make_trial(number=4, signals={"verdict": "tie", "judge_seconds": 1.0}))
    assert reader.comparisons() == [(0.0, 0.0, 2), (1.0, -0.5, 2)]


def test_what_is_summed_while_a_run_goes_on_is_in_the_order_of_the_log(store: RunStore, reader: RunReader) -> None:
    for number in range(6):
        store.append(free(number=number), free(LARGE, number=number))
    assert [spent.trials for spent in reader.spending(0, 4)] == [3, 6, 9, 12]
    assert [tuple(cell) for cell in reader.cells(5)] == [("small", "q1", 3), ("large", "q1", 2)]
    assert [trial.trial for trial in reader.model_trials("large")] == list(range(6))
    store.append(Dropped((LARGE, Q1, 5)), Dropped((LARGE, Q1, 4)))
    assert reader.trial_count() == 10
    store.append(free(LARGE, number=4))
    assert [(trial.model, trial.trial.number) for trial in reader.graded_trials()][-2:] == [("small", 5), ("large", 4)]
