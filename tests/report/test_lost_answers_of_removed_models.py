"""What a removed model had in flight counts as lost: at the mean of its answers, or at its worst under caps."""

from contextlib import closing
from pathlib import Path

import pytest
from adaptive_eval.report.old.other_costs import spent_on_removed_models
from adaptive_eval.store import CommitBatch, SentRequest
from adaptive_eval.store.usage import TrialUsage
from played import Played, prepared

from adaptive_eval.core.types import Cost
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.spending import mean_cost
from adaptive_eval.run.usage import GradingUse

EACH = Cost(30, 0.01, 0.5)
"""The cost of every answer that is stored."""
LOST = 3


def spent_on(model: str, folder: Path, answered: bool, **changes: object) -> tuple[int, Cost]:
    """Stored answers and spending of a model that was removed after a kill."""
    run = Played(folder / "run", prepared(folder, **changes))
    gone = run.plan.models.index(model)
    run.answer([ask for ask in run.controller.ask(54) if answered or ask.model != gone])
    run.store.commit(CommitBatch(sent=[SentRequest(model, LOST)]))
    run.close()
    with closing(RunReader.open(run.directory)) as reader:
        others = [name for name in run.plan.models if name != model]
        (row,) = spent_on_removed_models(reader, others, reader.events())
    assert row.answers == LOST
    return row.trials, Cost(row.tokens, row.usd, row.gpu_seconds)


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "never answered"])
def test_without_caps_it_counts_at_the_mean(tmp_path: Path, answered: bool) -> None:
    trials, cost = spent_on("cyd", tmp_path, answered)
    assert trials == 18 * answered
    assert tuple(cost) == pytest.approx(tuple(EACH.times(trials + LOST)))


def test_under_caps_it_counts_at_its_worst(tmp_path: Path) -> None:
    trials, cost = spent_on("cyd", tmp_path, True, budget={"tokens": 10**7})
    assert trials == 18
    assert cost.tokens > EACH.tokens * trials + LOST * 100, "max_tokens, and the prompt"


def test_the_mean_is_that_of_answers_without_their_grades() -> None:
    sums = [("ada", TrialUsage(trials=3, tokens=31)), ("bob", TrialUsage(trials=1, tokens=90)), ("cyd", TrialUsage())]
    grading = {"ada": GradingUse(2, Cost(12), Cost(1))}
    assert [mean_cost(name, sums, {}).tokens for name in ("ada", "bob", "cyd")] == [10, 90, 30], "cyd as all others"
    assert [mean_cost(name, sums, grading).tokens for name in ("ada", "bob", "cyd")] == [6, 90, 27]
    assert mean_cost("cyd", sums[2:], {}).tokens == 0
